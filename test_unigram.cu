// test_unigram.cu: Unigram tokenizers have the ids of Hugging Face's `tokenizers`, and give their text back: 10,000
// strings and every code point in the pipelines of T5, XLM-R, ALBERT, and in some that nobody has, against
// data/ref/unigram, which dev/ref/make_unigram.py made with that library; their files, and what is refused.
#include "galaxy.h"
#include "test/pipelines.h"

static int expect(void) { return expect_from("data/ref/unigram"); }
static int is_built(void) { return gx_regex_is_built() && gx_unicode_has_nfd(); }
#define NEEDS_LIBRARIES                                                                                                \
    if (!is_built()) SKIP("built without PCRE2 or utf8proc");                                                          \
    if (!expect()) return

// tokenizer.json with these components and this model, opened. 0: it cannot be.
static int open_document(GxTokenizer *t, const char *components, const char *model)
{
    GxError err = GX_ZERO;
    const size_t room = strlen(components) + strlen(model) + 100;
    char *document = (char *)malloc(room);
    snprintf(document, room, "{%s%s\"model\":{\"type\":\"Unigram\",%s}}", components, *components ? "," : "", model);
    put(at("tokenizer.json"), document, (int64_t)strlen(document));
    free(document);
    return CHECK(gx_tokenizer_open(t, at("tokenizer.json"), &err) == GX_OK, "%s", err.message);
}

// ---- ids and text --------------------------------------------------------------------------------------------------

TEST(ten_thousand_strings_have_the_ids_and_the_text_of_tokenizers_in_every_pipeline)
{
    NEEDS_LIBRARIES;
    check_strings();
}

TEST(every_code_point_is_changed_and_cut_as_tokenizers_does)
{
    NEEDS_LIBRARIES;
    check_points(3);
}

TEST(a_text_that_is_cut_behind_a_line_has_the_ids_of_the_whole)
{
    NEEDS_LIBRARIES;
    check_cuts(" byte level,");
}

TEST(texts_are_framed_and_cut_as_the_post_processor_says)
{
    NEEDS_LIBRARIES;
    check_frames();
}

TEST(bytes_that_are_not_utf8_and_texts_of_nothing_are_fine)
{
    NEEDS_LIBRARIES;
    check_odd_texts();
}

// What generation shows, token by token, is what decoding them together gives.
TEST(tokens_that_come_one_by_one_have_the_text_that_they_have_together)
{
    static const char *const names[] = {"t5", "bytes in one word", "byte level"};
    NEEDS_LIBRARIES;
    for (int p = 0, found = 0; p < wanted.n; p++) {
        GxTokenizer t;
        for (found = 0; found < 3 && strcmp(names[found], wanted.pipeline[p].name);) found++;
        if (found == 3) continue;
        if (!open_pipeline(&t, p)) return;
        for (int i = 0; i < 200; i++) {
            GxError err = GX_ZERO;
            GxTextStream s = gx_text_stream(&t, GX_SPECIAL_AS_TEXT, 0);
            Bytes shown = GX_ZERO;
            int64_t n, bytes, whole;
            int32_t *ids = encode(&t, &expected.string[i], GX_SPECIAL_AS_TEXT, &n);
            char *text = (char *)malloc((size_t)(n * t.longest));
            const char *more;
            gx_tokenizer_decode(&t, ids, n, GX_SPECIAL_AS_TEXT, text, &whole, &err);
            add(&shown, "", 0);
            for (int64_t k = 1; k <= n; k++) {
                CHECK(gx_text_stream_next(&s, ids, k, k == n, &more, &bytes, &err) == GX_OK, "%s", err.message);
                add(&shown, more, bytes);
            }
            CHECK(shown.n == whole && !memcmp(shown.p, text, (size_t)whole), "%s: \"%.*s\"", wanted.pipeline[p].name,
                  (int)shown.n, shown.p);
            gx_text_stream_close(&s);
            free(ids), free(text), free(shown.p);
        }
        gx_tokenizer_close(&t);
    }
}

TEST(no_text_has_more_tokens_than_are_foreseen)
{
    static const struct {
        const char *before, *text;
        int64_t bytes, tokens, most;
    } cases[] = {
        {"", "\xFF", 1, 3, 3},
        {"\"normalizer\":{\"type\":\"NFD\"}", "\xF0\x9D\x85\xA0", 4, 12, 12},
        {"\"normalizer\":{\"type\":\"NFKC\"}", "\xEF\xB7\xBA", 3, 33, 33},
        {"\"normalizer\":{\"type\":\"NFKD\"}", "\xFF", 1, 3, 11},
        {"\"normalizer\":{\"type\":\"Lowercase\"}", "\xC4\xB0", 2, 3, 12},
        {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"b\"},\"content\":\"ababa\"}", "bb", 2, 10, 30},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\"}", "\xFF", 1, 6, 12},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}", "\xFF", 1, 8, 12}};
    char model[8000] = "\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0]";
    NEEDS_LIBRARIES;
    for (int i = 0; i < 256; i++) sprintf(model + strlen(model), ",[\"<0x%02X>\",0]", (unsigned)i);
    strcat(model, "]");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxTokenizer t;
        int64_t n;
        const Bytes text = {(char *)cases[i].text, cases[i].bytes};
        if (!open_document(&t, cases[i].before, model)) return;
        free(encode(&t, &text, GX_SPECIAL_AS_TOKENS, &n));
        CHECK(n == cases[i].tokens && gx_tokenizer_most(&t, text.n) == cases[i].most,
              "case %d: %ld tokens of %ld, expected %ld of %ld", (int)i, (long)n, (long)gx_tokenizer_most(&t, text.n),
              (long)cases[i].tokens, (long)cases[i].most);
        gx_tokenizer_close(&t);
    }
}

// Without bytes for unknown characters a token has a character at least: a megabyte's room stays small.
TEST(where_tokens_have_characters_the_room_for_them_is_counted_in_characters)
{
    static const char one[] = "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1]]";
    GxTokenizer t;
    int64_t n;
    const Bytes text = {(char *)"\xEF\xB7\xBA\xEF\xB7\xBA", 6};
    NEEDS_LIBRARIES;
    if (!open_document(
            &t, "\"normalizer\":{\"type\":\"NFKD\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\"}",
            one))
        return;
    free(encode(&t, &text, GX_SPECIAL_AS_TOKENS, &n));
    CHECK(gx_tokenizer_most(&t, 1) == 18 * 2, "%ld", (long)gx_tokenizer_most(&t, 1));
    gx_tokenizer_close(&t);
    for (int p = 0; p < wanted.n; p++) {
        if (strcmp(wanted.pipeline[p].name, "t5")) continue;
        if (!open_pipeline(&t, p)) return;
        CHECK(gx_tokenizer_most(&t, 1) == 18 * 2, "t5: %ld", (long)gx_tokenizer_most(&t, 1));
        gx_tokenizer_close(&t);
    }
}

// ---- the model -----------------------------------------------------------------------------------------------------

// The ids of a text with a vocabulary, as text: "1 2 3".
static void check_ids(const char *model, const char *text, const char *wanted_ids)
{
    GxTokenizer t;
    char found[200] = "";
    int64_t n;
    const Bytes bytes = {(char *)text, (int64_t)strlen(text)};
    if (!open_document(&t, "", model)) return;
    int32_t *ids = encode(&t, &bytes, GX_SPECIAL_AS_TOKENS, &n);
    for (int64_t i = 0; i < n && i < 30; i++) sprintf(found + strlen(found), "%s%ld", i ? " " : "", (long)ids[i]);
    CHECK(!strcmp(found, wanted_ids), "\"%s\" with %.100s: %s, expected %s", text, model, found, wanted_ids);
    free(ids);
    gx_tokenizer_close(&t);
}

TEST(the_likeliest_pieces_are_taken_and_of_equally_likely_ones_those_that_begin_first)
{
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"aa\",-1.5],[\"aaa\",-4]]", "aaa", "1 2");
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"b\",-1],[\"ab\",-2]]", "ab", "3");
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"b\",-1],[\"ab\",-2.0000000000000004]]", "ab", "1 2");
    // unknown: 10 below the lowest
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"ab\",-11.9]]", "ab", "2");
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"c\",-5],[\"ab\",-15.5]]", "ab", "3");
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",5],[\"c\",4],[\"ab\",-1]]", "ab", "3");
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",90],[\"cb\",20],[\"ab\",75]]", "ab", "1 0");
    // in a row, and what is a piece after all
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1]]", "xyaz<unk>x", "0 1 0");
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",40],[\"a\",39],[\"xy\",39.5]]", "axya", "1 2 1");
    check_ids("\"unk_id\":0,\"vocab\":[[\"<unk>\",40],[\"a\",39],[\"xy\",39.5]]", "axyxya", "1 0 1");
}

// The first two are not the nearest doubles.
TEST(scores_are_read_as_tokenizers_reads_them)
{
    static const struct {
        const char *written;
        double read;
    } cases[] = {{"-2.0122928619384766", -2.012292861938477},
                 {"-9.134364128112793", -9.134364128112791},
                 {"0", 0},
                 {"-3", -3},
                 {"-12", -12},
                 {"-0.25", -0.25},
                 {"-1e-7", -1e-7},
                 {"1.5e300", 1.5e300}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxTokenizer t;
        char model[200];
        snprintf(model, sizeof model, "\"vocab\":[[\"a\",%s]]", cases[i].written);
        if (!open_document(&t, "", model)) return;
        const double score = ((const GxUnigramTokenizer *)t.vocabulary)->model.score[0];
        CHECK(score == cases[i].read, "%s is %.20g, expected %.20g", cases[i].written, score, cases[i].read);
        gx_tokenizer_close(&t);
    }
}

TEST(a_character_that_is_no_piece_needs_one_for_unknown_ones)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    int32_t ids[10];
    int64_t n;
    if (!open_document(&t, "", "\"unk_id\":null,\"vocab\":[[\"a\",-1]]")) return;
    CHECK(gx_tokenizer_encode(&t, "aa", 2, GX_SPECIAL_AS_TEXT, ids, &n, &err) == GX_OK && n == 2, "%s", err.message);
    refused(&err, gx_tokenizer_encode(&t, "ax", 2, GX_SPECIAL_AS_TEXT, ids, &n, &err), GX_ERR_FORMAT, "\"x\"",
            "the vocabulary has none for unknown text");
    CHECK(n == 0, "%ld", (long)n);
    gx_tokenizer_close(&t);
}

// Words of a million characters: of pieces, of unknown ones, of bytes; a step back for each would take hours.
TEST(a_long_word_takes_time_and_room_in_proportion)
{
    enum { N = 1 << 20 };
    GxTokenizer t;
    GxError err = GX_ZERO;
    char *word = (char *)malloc(N);
    int64_t n;
    if (!open_document(&t, "", "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-3],[\"aa\",-3],[\"aaaa\",-3.5]]")) return;
    int32_t *ids = (int32_t *)malloc((size_t)gx_tokenizer_most(&t, N) * sizeof *ids);
    const double begun = gx_seconds();
    memset(word, 'a', N);
    CHECK(gx_tokenizer_encode(&t, word, N - 1, GX_SPECIAL_AS_TEXT, ids, &n, &err) == GX_OK, "%s", err.message);
    CHECK(n == N / 4 + 1, "%ld ids of pieces", (long)n);
    memset(word, 'b', N);
    CHECK(gx_tokenizer_encode(&t, word, N, GX_SPECIAL_AS_TEXT, ids, &n, &err) == GX_OK, "%s", err.message);
    CHECK(n == 1 && ids[0] == 0, "%ld ids of what is unknown", (long)n);
    CHECK(gx_seconds() - begun < 60, "%.1f s", gx_seconds() - begun);
    free(ids), free(word);
    gx_tokenizer_close(&t);
}

TEST(graphemes_are_those_of_unicode)
{
    static const char *const texts[] = {"a",
                                        "e\u0301\u0302",
                                        "\r\n",
                                        "\U0001F1E9\U0001F1EA",
                                        "\u0600\U0001F1E9\U0001F1EA",
                                        "\U0001F468\u200D\U0001F469\u200D\U0001F467",
                                        "\u2764\uFE0F\u200D\U0001F525",
                                        "\U0001F44D\U0001F3FD",
                                        "\u1112\u1161\u11AB",
                                        "\uAC00\u11A8\u11A8",
                                        "\uAC01\u11A8",
                                        "\u1100\u1100\uAC01",
                                        "\uAC00\u1161\u1161\u11A8",
                                        "\u0915\u094D\u0937\u093F",
                                        "\u0600\u0915"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int followed = 0; followed < 4; followed++) { // by a letter, by a flag's half, by a control character
            static const char *const more[] = {"", "b", "\U0001F1E9", "\n"};
            char text[80];
            const int64_t n = (int64_t)strlen(texts[i]);
            snprintf(text, sizeof text, "%s%s", texts[i], more[followed]);
            const int64_t found = gx_unicode_grapheme(text, text + strlen(text));
            CHECK(found == n, "\"%s\": %ld bytes, expected %ld", text, (long)found, (long)n);
        }
}

// ---- files ---------------------------------------------------------------------------------------------------------

TEST(what_is_written_is_what_was_read_byte_for_byte)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    put(at("tokenizer_config.json"), "{ \"eos_token\": \"</s>\", \"pad_token\": {\"content\": \"<pad>\"}}", 57);
    for (int p = 0; p < wanted.n; p++) {
        GxTokenizer t, again;
        if (!open_pipeline(&t, p)) break;
        mkdir(at("folder"), 0777);
        CHECK(gx_tokenizer_write(&t, at("folder"), &err) == GX_OK &&
                  gx_tokenizer_check(&t, at("folder"), &err) == GX_OK &&
                  gx_tokenizer_open(&again, at("folder"), &err) == GX_OK,
              "%s", err.message);
        for (int i = 0; i < 2; i++) {
            char name[100], *before = get(at(files[i]));
            snprintf(name, sizeof name, "folder/%s", files[i]);
            char *after = get(at(name));
            CHECK(!strcmp(before, after), "%s is another", files[i]);
            free(before), free(after);
        }
        CHECK(!strcmp(t.identity, again.identity) && !strncmp(t.identity, "unigram-", 8), "%s, and then %s", t.identity,
              again.identity);
        CHECK(t.end == gx_tokenizer_find(&t, "</s>") && t.role[GX_TOKEN_PAD] == gx_tokenizer_find(&t, "<pad>") &&
                  t.role[GX_TOKEN_UNK] == gx_tokenizer_find(&t, "<unk>"),
              "%ld %ld %ld", (long)t.end, (long)t.role[GX_TOKEN_PAD], (long)t.role[GX_TOKEN_UNK]);
        gx_tokenizer_close(&t), gx_tokenizer_close(&again);
        gx_folder_remove(at("folder"), &err);
    }
    unlink(at("tokenizer_config.json"));
}

TEST(what_gives_other_ids_has_another_identity)
{
    static const char *const changes[][3] = {{"t5", "\"WhitespaceSplit\"", "\"Digits\",\"individual_digits\":true"},
                                             {"t5", "[\"the\",-", "[\"the\",-1"},
                                             {"t5", "\"unk_id\":2", "\"unk_id\":3"},
                                             {"t5", "\"prepend_scheme\":\"always\"", "\"prepend_scheme\":\"never\""},
                                             {"xlm-r", " {2,}", " {3,}"},
                                             {"nfkc", "\"NFKC\"", "\"NFKD\""},
                                             {"nfkc", "\"strip_right\":false", "\"strip_right\":true"},
                                             {"bytes", "\"byte_fallback\":true", "\"byte_fallback\":false"}};
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        GxTokenizer t;
        put_pipeline(pipeline_of(changes[i][0]), NULL, NULL);
        if (!CHECK(gx_tokenizer_open(&t, root, &err) == GX_OK, "%s", err.message)) return;
        put_pipeline(pipeline_of(changes[i][0]), changes[i][1], changes[i][2]);
        refused(&err, gx_tokenizer_check(&t, root, &err), GX_ERR_FORMAT, root, "the same pieces, but other");
        gx_tokenizer_close(&t);
    }
}

TEST(files_that_are_wrong_are_refused_by_name)
{
    static const struct {
        const char *pipeline, *from, *to;
        GxStatus code;
        const char *message;
    } changes[] = {
        {"t5", "\"WhitespaceSplit\"", "\"Whitespace\"", GX_ERR_UNSUPPORTED,
         "the pre_tokenizer is of the type \"Whitespace\"; supported: ByteLevel, Split, WhitespaceSplit"},
        {"t5", "\"type\":\"Precompiled\"", "\"type\":\"StripAccents\"", GX_ERR_UNSUPPORTED,
         "the normalizer is of the type \"StripAccents\"; supported: NFC, NFD, NFKC, NFKD, Lowercase, Precompiled"},
        {"t5", "\"type\":\"TemplateProcessing\"", "\"type\":\"BertProcessing\"", GX_ERR_UNSUPPORTED,
         "the post_processor is of the type \"BertProcessing\""},
        {"t5", "\"unk_id\":2", "\"unk_id\":99999", GX_ERR_FORMAT, "the unk_id is 99999; expected 0 to"},
        {"t5", "\"unk_id\":2", "\"unk_id\":-1", GX_ERR_FORMAT, "the unk_id is -1"},
        {"t5", "\"unk_id\":2", "\"unk_id\":true", GX_ERR_FORMAT, "\"unk_id\" is"},
        {"t5", "[\"<pad>\",0.0]", "[\"<pad>\",\"0\"]", GX_ERR_FORMAT,
         "piece 0 of the vocabulary is [a string, a string]; expected [\"piece\", score]"},
        {"t5", "[\"<pad>\",0.0]", "[\"<pad>\"]", GX_ERR_FORMAT, "piece 0 of the vocabulary is an array of 1;"},
        {"t5", "[\"<pad>\",0.0]", "7", GX_ERR_FORMAT, "piece 0 of the vocabulary is an integer"},
        {"t5", "[\"</s>\",0.0]", "[\"</s>\",0.0],[\"</s>\",0.0]", GX_ERR_FORMAT,
         "piece 1 of the vocabulary, \"</s>\", is listed twice"},
        {"t5", "\"vocab\":[[", "\"vocab\":[],\"more\":[[", GX_ERR_FORMAT, "the vocabulary has 0 pieces"},
        {"t5", "\"vocab\":[[", "\"vocab\":{},\"more\":[[", GX_ERR_FORMAT, "\"vocab\" is an object"},
        {"nfkc", "\"strip_left\"", "\"left\"", GX_ERR_FORMAT, "\"strip_left\" is missing"},
        {"xlm-r", " {2,}", "a*", GX_ERR_UNSUPPORTED, "can match the empty text"},
    };
    GxTokenizer t;
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        put_pipeline(pipeline_of(changes[i].pipeline), changes[i].from, changes[i].to);
        refused(&err, gx_tokenizer_open(&t, root, &err), changes[i].code, "tokenizer.json", changes[i].message);
        CHECK(!t.kind && !t.vocabulary, "something is open");
    }
}

// A trie of 259 units, whose key "a" is at unit 97 and becomes the text at `value`, and a text of three bytes.
static void make_charsmap(unsigned char *data, uint32_t root_unit, uint32_t unit, uint32_t value, const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { UNITS = 259, BYTES = 4 + 4 * UNITS + 3 + 1 };
    unsigned char raw[BYTES] = {0};
    const uint32_t numbers[][2] = {{0, 4 * UNITS}, {4, root_unit}, {4 + 4 * 97, unit}, {4 + 4 * 1, value}};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) raw[numbers[i][0] + (unsigned)k] = (unsigned char)(numbers[i][1] >> 8 * k);
    memcpy(raw + BYTES - 4, text, 3);
    for (int i = 0; i + 2 < BYTES; i += 3) { // BYTES is a multiple of 3
        const uint32_t bits = (uint32_t)raw[i] << 16 | (uint32_t)raw[i + 1] << 8 | raw[i + 2];
        for (int k = 0; k < 4; k++) *data++ = (unsigned char)digits[bits >> (18 - 6 * k) & 63];
    }
    *data = 0;
}

TEST(a_charsmap_that_leads_beyond_its_end_is_refused)
{
    enum { LEAF = 1 << 8, FAR = 1 << 9 };
    const uint32_t a = 97 | LEAF | 96u << 10, value = 1u << 31; // 97 ^ 96 is 1
    const struct {
        uint32_t root_unit, unit, value;
        const char *text, *message;
    } cases[] = {{0, a, value, "xy\0", ""},
                 {0, a, value | 3, "xyz", ""}, // the 0 behind it: no text
                 {0, a, value | 4, "xyz", ""}, // its end
                 {0, a, value | 5, "xyz", "points beyond its end"},
                 {0, a, value | 1, "\xC3\xA9z", "points beyond its end"}, // within a character
                 {0, a, value, "\xC3z ", "are not UTF-8"},
                 {256u << 10, a, value, "xyz", "points beyond its end"}, // its children do: 256 ^ 3 and on
                 {1u << 10 | FAR, a, value, "xyz", "points beyond its end"},
                 {0, 97 | LEAF | 1000u << 10, value, "xyz", "points beyond its end"},
                 {0, 97 | 1000u << 10, value, "xyz", "points beyond its end"},
                 {0, 97 | 0u << 10, value, "xyz", ""}}; // around and around, to no key
    unsigned char base64[2000];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxCharsmap m;
        GxError err = GX_ZERO;
        int64_t n;
        make_charsmap(base64, cases[i].root_unit, cases[i].unit, cases[i].value, cases[i].text);
        const GxStatus status = gx_charsmap_open(&m, (const char *)base64, "the file", &err);
        if (*cases[i].message) {
            refused(&err, status, GX_ERR_FORMAT, "the file", cases[i].message);
            CHECK(!m.unit && !m.data, "something is open");
            continue;
        }
        if (!CHECK(status == GX_OK, "case %d: %s", (int)i, err.message)) continue;
        const char *found = gx_charsmap_find(&m, "aa", 2, &n);
        CHECK(i ? i == 10 ? !found : found && n == 0 : found && n == 2 && !memcmp(found, "xy", 2), "case %d", (int)i);
        CHECK(!gx_charsmap_find(&m, "b", 1, &n) && !gx_charsmap_find(&m, "\0a", 2, &n), "case %d", (int)i);
        gx_charsmap_close(&m);
    }
}

TEST(a_charsmap_that_is_no_base64_or_too_short_is_refused)
{
    static const char *const texts[] = {"A",    "AAA",  "AAAAA",  "AAA*", "A===",     "AB==",         "AAB=",
                                        "=AAA", "AA=A", "AAAA\n", "AAAA", "BAAAAA==", "BQAAAAAAAAA=", "AAAAAA=="};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        GxCharsmap m;
        GxError err = GX_ZERO;
        refused(&err, gx_charsmap_open(&m, texts[i], "the file", &err), GX_ERR_FORMAT, "the file",
                i < 10 ? "is no base64" : "is too short for its trie");
    }
}

TEST(pieces_are_known_by_name_and_by_id)
{
    GxTokenizer t;
    char room[8];
    NEEDS_LIBRARIES;
    if (!open_pipeline(&t, 0)) return;
    const int32_t the = gx_tokenizer_find(&t, "▁the"), e = gx_tokenizer_find(&t, "e"),
                  extra = gx_tokenizer_find(&t, "<extra_id_0>");
    CHECK(gx_tokenizer_find(&t, "</s>") == 1 && gx_tokenizer_is_special(&t, 1) && !gx_tokenizer_continues(&t, 1),
          "</s>");
    CHECK(the > 0 && !gx_tokenizer_continues(&t, the) && e > 0 && gx_tokenizer_continues(&t, e), "%d %d", the, e);
    CHECK(extra > 0 && gx_tokenizer_is_special(&t, extra) &&
              !strcmp(gx_tokenizer_piece(&t, extra, room), "<extra_id_0>"),
          "%d", extra);
    CHECK(gx_tokenizer_find(&t, "no such piece") == -1 && !gx_tokenizer_piece(&t, t.vocab_size, room), "beyond");
    gx_tokenizer_close(&t);
}

int main(int argc, char **argv)
{
    const int failed = test_in_folder(argc, argv, "test_unigram");
    gx_json_free(wanted.pipelines);
    return failed;
}
