// test_bpe.cu: BPE has the ids of Hugging Face's `tokenizers`, and gives its text back: 10,000 strings and every code
// point in the pipelines of GPT-2, LLaMA-2 and 3, Gemma 3, Mistral (with Tekken, too), Qwen, SmolLM2, DeepSeek, and in
// some that nobody has, against data/ref/bpe, which dev/ref/make_bpe.py made with that library; texts and pairs in
// RoBERTa's frame; its files, and what is refused.
#include "galaxy.h"
#include "test/pipelines.h"

static int expect(void) { return expect_from("data/ref/bpe"); }
static int is_built(void) { return gx_regex_is_built() && gx_unicode_has_nfd(); }
#define NEEDS_LIBRARIES                                                                                                \
    if (!is_built()) SKIP("built without PCRE2 or utf8proc");                                                          \
    if (!expect()) return

// ---- ids and text --------------------------------------------------------------------------------------------------

TEST(ten_thousand_strings_have_the_ids_and_the_text_of_tokenizers_in_every_pipeline)
{
    NEEDS_LIBRARIES;
    check_strings();
}

TEST(every_code_point_is_cut_into_words_as_tokenizers_does)
{
    NEEDS_LIBRARIES;
    check_points(4);
}

TEST(a_text_that_is_cut_behind_a_line_has_the_ids_of_the_whole)
{
    NEEDS_LIBRARIES;
    check_cuts(" gpt2, llama3, qwen, tekken, smollm,");
}

// A tokenizer in which any two neighbours within a word become one piece: words that end elsewhere have other ids.
static int open_pairs(GxTokenizer *t, const char *words, const char *added, const char *normalizer)
{
    static const char *const piece[] = {"a", "B", "1", ".", "'", "\u0120", "\u010A", "\u010D", "s"};
    char json[12000], *p = json;
    GxError err = GX_ZERO;
    p += sprintf(p,
                 "{\"normalizer\": %s, \"added_tokens\": [%s], \"pre_tokenizer\": {\"type\": \"Sequence\", "
                 "\"pretokenizers\": [",
                 normalizer, added);
    if (*words)
        p += sprintf(
            p, "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"invert\": false, \"pattern\": {\"Regex\": \"");
    for (const char *w = words; *w; w++) p += sprintf(p, *w == '\\' ? "\\\\" : "%c", *w);
    p += sprintf(p,
                 "%s{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}, \"model\": "
                 "{\"type\": \"BPE\", \"vocab\": {",
                 *words ? "\"}}, " : "");
    for (int i = 0; i < 9; i++) p += sprintf(p, "\"%s\": %d, ", piece[i], i);
    for (int i = 0; i < 81; i++)
        p += sprintf(p, "\"%s%s\": %d%s", piece[i / 9], piece[i % 9], 9 + i, i < 80 ? ", " : "}, \"merges\": [");
    for (int i = 0; i < 81; i++) p += sprintf(p, "\"%s %s\"%s", piece[i / 9], piece[i % 9], i < 80 ? ", " : "]}}");
    put(at("tokenizer.json"), json, p - json);
    return CHECK(gx_tokenizer_open(t, at("tokenizer.json"), &err) == GX_OK, "%s", err.message);
}

static int same_cut(const GxTokenizer *t, const char *text, int64_t n, int64_t cut)
{
    const Bytes all = {(char *)text, n}, part[2] = {{(char *)text, cut}, {(char *)text + cut, n - cut}};
    int64_t count[3];
    int32_t *ids = encode(t, &all, GX_SPECIAL_AS_TEXT, &count[0]),
            *first = encode(t, &part[0], GX_SPECIAL_AS_TEXT, &count[1]),
            *second = encode(t, &part[1], GX_SPECIAL_AS_TEXT, &count[2]);
    const int same = count[1] + count[2] == count[0] && !memcmp(first, ids, 4 * (size_t)count[1]) &&
                     !memcmp(second, ids + count[1], 4 * (size_t)count[2]);
    free(ids), free(first), free(second);
    return same;
}

// Every text of five of nine characters: nowhere is it cut where that changes an id, whatever words end by.
TEST(no_text_of_five_characters_is_cut_where_that_changes_ids)
{
    static const char *const words[] = {gx_words_of_gpt2, gx_words_of_llama3, gx_words_of_qwen2, gx_words_of_tekken};
    static const char alphabet[] = "aB1.' \n\rs";
    NEEDS_LIBRARIES;
    for (int k = 0; k < 4; k++) {
        GxTokenizer t;
        int places = 0, wrong = 0;
        char text[6] = "";
        if (!open_pairs(&t, words[k], "", "null")) return;
        for (int number = 0; number < 59049; number++) {
            for (int i = 0, rest = number; i < 5; i++, rest /= 9) text[i] = alphabet[rest % 9];
            const int64_t cut = gx_tokenizer_cut(&t, text, 5, 0);
            places += cut < 5;
            if (cut < 5 && !same_cut(&t, text, 5, cut) && wrong++ < 3)
                CHECK(0, "words %d: \"%s\" cut at %ld has other ids", k, text, (long)cut);
        }
        CHECK(places > 1000 && wrong == 0, "words %d: %d of %d places are wrong", k, wrong, places);
        gx_tokenizer_close(&t);
    }
}

TEST(a_text_is_not_cut_where_an_added_token_or_a_step_may_look_over_the_end_of_a_line)
{
    static const struct {
        const char *words, *added, *normalizer;
        int is_cut;
    } cases[] = {
#define ADDED(content, lstrip)                                                                                         \
    "{\"id\": 90, \"content\": \"" content "\", \"special\": false, \"normalized\": false, \"lstrip\": " lstrip        \
    ", \"rstrip\": true, \"single_word\": false}"
        {gx_words_of_gpt2, "", "null", 1},
        {gx_words_of_gpt2, "", "{\"type\": \"NFC\"}", 1},
        {gx_words_of_gpt2, ADDED("1aa", "false"), "null", 1},
        {gx_words_of_gpt2, ADDED(".aa", "true"), "null", 1},
        {gx_words_of_gpt2, ADDED("aBa", "true"), "null", 0},
        {gx_words_of_gpt2, ADDED("1\\na", "false"), "null", 0},
        {gx_words_of_gpt2, ADDED("\u00C9a", "true"), "{\"type\": \"NFC\"}", 0}, // E and a mark
        {gx_words_of_gpt2, "", "{\"type\": \"Prepend\", \"prepend\": \" \"}", 0},
        {gx_words_of_gpt2, "", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"1\"}, \"content\": \" \"}", 0},
        {"[^a]+", "", "null", 0},
        {"", "", "null", 0}, // no words: the text is one
    };
    NEEDS_LIBRARIES;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        static const char *const text[] = {"B1\naB.", "'a\naBs", ".a\nBaB"};
        GxTokenizer t;
        if (!open_pairs(&t, cases[k].words, cases[k].added, cases[k].normalizer)) return;
        for (int i = 0; i < 3; i++) {
            const int64_t cut = gx_tokenizer_cut(&t, text[i], 6, 0);
            CHECK(cut == (cases[k].is_cut ? 3 : 6), "case %d: \"%s\" is cut at %ld", (int)k, text[i], (long)cut);
            CHECK(!cases[k].is_cut || same_cut(&t, text[i], 6, cut), "case %d: \"%s\" has other ids", (int)k, text[i]);
        }
        gx_tokenizer_close(&t);
    }
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

// A vocabulary of nothing but bytes: the most tokens that a text can have.
TEST(no_text_has_more_tokens_than_are_foreseen)
{
    static const struct {
        const char *before, *text;
        int64_t bytes, tokens;
    } cases[] = {
        {"\"pre_tokenizer\":null", "\xFF", 1, 3},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\"}", "\xFF", 1, 6},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\"}", "    ", 4, 12},
        {"\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"▁▁\"}", "<x>a<x>\xFF", 8, 18},
        {"\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"ababab\"}", "aaa", 3, 18},
        {"\"normalizer\":{\"type\":\"NFC\"}", "\xF0\x9D\x85\xA0", 4, 12},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}", "\xFF", 1, 8}};
    char vocab[6000] = "";
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    for (int i = 0; i < 256; i++) sprintf(vocab + strlen(vocab), "\"<0x%02X>\":%d,", (unsigned)i, i);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char document[8000];
        GxTokenizer t;
        GxError err = GX_ZERO;
        int64_t n;
        Bytes text = {(char *)cases[i].text, cases[i].bytes};
        snprintf(document, sizeof document,
                 "{%s,\"added_tokens\":[{\"id\":257,\"content\":\"<x>\",\"single_word\":false,\"lstrip\":false,"
                 "\"rstrip\":false,\"normalized\":false,\"special\":false}],\"model\":{\"type\":\"BPE\","
                 "\"byte_fallback\":true,\"vocab\":{%s\"<0x41><0x42>\":256},\"merges\":[\"<0x41> <0x42>\"]}}",
                 cases[i].before, vocab);
        put(at("tokenizer.json"), document, (int64_t)strlen(document));
        if (!CHECK(gx_tokenizer_open(&t, at("tokenizer.json"), &err) == GX_OK, "%s", err.message)) return;
        free(encode(&t, &text, GX_SPECIAL_AS_TOKENS, &n));
        CHECK(n == cases[i].tokens, "case %d: %ld tokens, expected %ld", (int)i, (long)n, (long)cases[i].tokens);
        gx_tokenizer_close(&t);
    }
}

// One word of a million characters, all of whose pairs are merges: with steps that look at the whole word for each
// merge it would take hours.
TEST(a_long_word_takes_no_longer_than_its_heap)
{
    enum { N = 1 << 20 };
    GxBpe b = GX_ZERO;
    GxBpeRoom room = GX_ZERO;
    GxError err = GX_ZERO;
    int32_t *ids = (int32_t *)malloc(N * sizeof *ids);
    char *word = (char *)malloc(N), piece[64] = "";
    int64_t n;
    for (int i = 0; i < 5; i++) { // a, aa, aaaa, …
        memset(piece, 'a', 1u << i);
        gx_pieces_add(&b.p, i, piece, 1 << i, GX_PIECE_MODEL, &err);
    }
    gx_pieces_index(&b.p, &err);
    gx_bpe_reserve(&b, 4, &err);
    for (int i = 0; i < 4; i++) gx_bpe_merge(&b, i, i, i + 1);
    gx_bpe_ready(&b);
    b.unk = -1;
    memset(word, 'a', N);
    const double begun = gx_seconds();
    CHECK(gx_bpe_word(&b, &room, word, N - 1, ids, &n, &err) == GX_OK, "%s", err.message);
    const double seconds = gx_seconds() - begun;
    CHECK(n == N / 16 + 3 && ids[0] == 4 && ids[n - 4] == 3 && ids[n - 3] == 2 && ids[n - 1] == 0, "%ld ids", (long)n);
    CHECK(seconds < 60, "%.1f s", seconds);
    gx_bpe_room_close(&room);
    gx_bpe_close(&b);
    free(ids), free(word);
}

// ---- RoBERTa's frame -----------------------------------------------------------------------------------------------

#define ROBERTA "data/ref/bpe/roberta.json"
enum { ROBERTA_LONG = 500 }; // more than the tokens of any text here

// roberta.json in the temporary folder, with `from` replaced by `to` (NULL: nothing is), opened.
static GxStatus open_roberta(GxTokenizer *t, const char *from, const char *to, GxError *err)
{
    char *text = get(ROBERTA), *changed = from ? replaced(text, from, to) : NULL;
    put(at("tokenizer.json"), changed ? changed : text, (int64_t)strlen(changed ? changed : text));
    free(text), free(changed);
    return gx_tokenizer_open(t, at("tokenizer.json"), err);
}

static GxJson *read_roberta(void) // NULL: it cannot be read
{
    GxJson *all = NULL;
    GxError err = GX_ZERO;
    CHECK(gx_json_read(&all, "data/ref/bpe/roberta_expected.json", 1 << 20, &err) == GX_OK &&
              gx_json_size(gx_json_get(all, "texts")) == 240 && gx_json_size(gx_json_get(all, "pairs")) == 120,
          "%s", err.message);
    return all;
}

static void same_ids(const char *what, int64_t i, const int32_t *ids, const int32_t *types, int64_t n,
                     const GxJson *wanted_ids)
{
    CHECK(n == gx_json_size(wanted_ids), "%s %ld: %ld tokens, expected %ld", what, (long)i, (long)n,
          (long)gx_json_size(wanted_ids));
    for (int64_t k = 0; k < n && k < gx_json_size(wanted_ids); k++)
        CHECK(ids[k] == gx_json_int(gx_json_at(wanted_ids, k)) && types[k] == 0,
              "%s %ld: token %ld is %ld of type %ld, expected %ld of type 0", what, (long)i, (long)k, (long)ids[k],
              (long)types[k], (long)gx_json_int(gx_json_at(wanted_ids, k)));
}

// Column 1: as the file says; 2: with special tokens as characters; 3: with a space put before each text.
static void check_roberta_texts(const GxJson *texts, GxTokenizer *t, int column)
{
    static const char *const what[] = {"", "text", "text of characters", "text behind a space"};
    t->splits_special = column == 2;
    for (int64_t i = 0; i < gx_json_size(texts); i++) {
        const GxJson *row = gx_json_at(texts, i);
        const char *text = gx_json_string(gx_json_at(row, 0));
        int32_t ids[ROBERTA_LONG], types[ROBERTA_LONG];
        int64_t n, all;
        GxError err = GX_ZERO;
        CHECK(gx_tokenizer_encode_framed(t, text, (int64_t)strlen(text), ROBERTA_LONG, ids, types, &n, &all, &err) ==
                      GX_OK &&
                  n == all,
              "%s", err.message);
        same_ids(what[column], i, ids, types, n, gx_json_at(row, column));
    }
}

TEST(texts_in_robertas_frame_have_the_ids_of_tokenizers)
{
    GxTokenizer t, spaced;
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    GxJson *all = read_roberta();
    const GxJson *texts = gx_json_get(all, "texts");
    static const char *const prefix[] = {"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false",
                                         "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true"};
    if (CHECK(open_roberta(&t, NULL, NULL, &err) == GX_OK, "%s", err.message)) {
        CHECK(gx_tokenizer_frame_tokens(&t, 1) == 2 && gx_tokenizer_frame_tokens(&t, 2) == 4, "%d and %d tokens",
              gx_tokenizer_frame_tokens(&t, 1), gx_tokenizer_frame_tokens(&t, 2));
        check_roberta_texts(texts, &t, 1), check_roberta_texts(texts, &t, 2);
        gx_tokenizer_close(&t);
    }
    if (CHECK(open_roberta(&spaced, prefix[0], prefix[1], &err) == GX_OK, "%s", err.message)) {
        check_roberta_texts(texts, &spaced, 3);
        gx_tokenizer_close(&spaced);
    }
    gx_json_free(all);
}

static void check_roberta_pair(const GxTokenizer *t, const GxJson *texts, const GxJson *row, int64_t i)
{
    int32_t plain[2][ROBERTA_LONG], ids[ROBERTA_LONG], types[ROBERTA_LONG];
    int64_t n[2] = {0, 0}, number[2], framed = 0;
    const int64_t most = gx_json_int(gx_json_at(row, 2));
    GxError err = GX_ZERO;
    for (int k = 0; k < 2; k++) {
        number[k] = gx_json_int(gx_json_at(row, k));
        const char *text = number[k] < 0 ? "" : gx_json_string(gx_json_at(gx_json_at(texts, number[k]), 0));
        CHECK(gx_tokenizer_encode(t, text, (int64_t)strlen(text), GX_SPECIAL_AS_TOKENS, plain[k], &n[k], &err) == GX_OK,
              "%s", err.message);
    }
    const GxTokenTexts both = {plain[0], number[1] < 0 ? NULL : plain[1], n[0], n[1]};
    int is_cut = -1;
    CHECK(gx_tokenizer_join(t, &both, most ? most : (int64_t)ROBERTA_LONG, ids, types, &framed, &is_cut, &err) == GX_OK,
          "%s", err.message);
    CHECK(is_cut == (framed < n[0] + n[1] + gx_tokenizer_frame_tokens(t, both.b ? 2 : 1)), "pair %ld: cut %d", (long)i,
          is_cut);
    same_ids("pair", i, ids, types, framed, gx_json_at(row, 3));
}

TEST(pairs_in_robertas_frame_have_the_ids_of_tokenizers_also_cut_and_all_of_type_0)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    GxJson *all = read_roberta();
    if (CHECK(gx_tokenizer_open(&t, ROBERTA, &err) == GX_OK, "%s", err.message)) {
        for (int64_t i = 0; i < gx_json_size(gx_json_get(all, "pairs")); i++)
            check_roberta_pair(&t, gx_json_get(all, "texts"), gx_json_at(gx_json_get(all, "pairs"), i), i);
        gx_tokenizer_close(&t);
    }
    gx_json_free(all);
}

// A text with <mask> behind a space, which belongs to it.
static void check_roberta_frame(const GxTokenizer *t)
{
    static const char text[] = "a <mask>";
    const int32_t expected_ids[] = {0, gx_tokenizer_find(t, "a"), gx_tokenizer_find(t, "<mask>"), 2};
    int32_t ids[20], types[20];
    int64_t n = 0;
    GxError err = GX_ZERO;
    CHECK(gx_tokenizer_encode_framed(t, text, 8, 20, ids, types, &n, NULL, &err) == GX_OK && n == 4 &&
              !memcmp(ids, expected_ids, sizeof expected_ids),
          "%ld tokens: %s", (long)n, err.message);
}

// As in a checkpoint: as it was read, and with a token more.
TEST(robertas_post_processor_stays_in_the_file_that_is_written_also_with_tokens_added)
{
    static const char list_of_one[] = "[{\"content\": \"<new>\", \"special\": true, \"lstrip\": true}]";
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    for (int adds = 0; adds < 2; adds++) {
        GxTokenizer t, again;
        GxNewTokens list = GX_ZERO;
        GxTokensAdded said;
        GxJson *json[2] = {NULL, NULL};
        if (!CHECK(open_roberta(&t, NULL, NULL, &err) == GX_OK, "%s", err.message)) return;
        const int before = t.vocab_size;
        if (adds)
            CHECK(gx_new_tokens_read(&list, list_of_one, (int64_t)strlen(list_of_one), "list.json", &err) == GX_OK &&
                      gx_tokenizer_add(&t, &list, &said, &err) == GX_OK && said.first == before &&
                      t.vocab_size == before + 1,
                  "%s", err.message);
        mkdir(at("folder"), 0777);
        CHECK(gx_tokenizer_write(&t, at("folder"), &err) == GX_OK &&
                  gx_tokenizer_check(&t, at("folder"), &err) == GX_OK &&
                  gx_json_read(&json[0], ROBERTA, 1 << 20, &err) == GX_OK &&
                  gx_json_read(&json[1], at("folder/tokenizer.json"), 1 << 20, &err) == GX_OK,
              "%s", err.message);
        CHECK(
            gx_json_size(gx_json_get(json[1], "post_processor")) == 5 &&
                gx_tokenizer_json_equal(gx_json_get(json[0], "post_processor"), gx_json_get(json[1], "post_processor")),
            "another post_processor");
        check_roberta_frame(&t);
        if (CHECK(gx_tokenizer_open(&again, at("folder"), &err) == GX_OK, "%s", err.message)) {
            check_roberta_frame(&again);
            CHECK(gx_tokenizer_find(&again, "<new>") == (adds ? before : -1), "its id");
            gx_tokenizer_close(&again);
        }
        gx_json_free(json[0]), gx_json_free(json[1]);
        gx_new_tokens_close(&list), gx_tokenizer_close(&t), gx_folder_remove(at("folder"), &err);
    }
}

TEST(a_post_processor_that_the_vocabulary_or_tokenizers_contradicts_is_refused_by_name)
{
    static const struct {
        const char *from, *to;
        GxStatus code;
        const char *message;
    } changes[] = {
        {"\"sep\":[\"</s>\",2]", "\"sep\":[\"</s>\",7]", GX_ERR_FORMAT,
         "RobertaProcessing's \"sep\" is \"</s>\" with the id 7; expected 2, its id in the vocabulary"},
        {"\"cls\":[\"<s>\",0]", "\"cls\":[\"<s>\",2]", GX_ERR_FORMAT,
         "RobertaProcessing's \"cls\" is \"<s>\" with the id 2; expected 0"},
        {"\"cls\":[\"<s>\",0]", "\"cls\":[\"[CLS]\",0]", GX_ERR_FORMAT,
         "RobertaProcessing's \"cls\" is \"[CLS]\" with the id 0, but the vocabulary has no such token; expected"},
        {"\"sep\":[\"</s>\",2]", "\"sep\":[\"</s>\"]", GX_ERR_FORMAT,
         "\"sep\" is an array of 1, the first a string and the second nothing; expected a token and its id"},
        {"\"sep\":[\"</s>\",2]", "\"sep\":[2,\"</s>\"]", GX_ERR_FORMAT,
         "\"sep\" is an array of 2, the first an integer and the second a string; expected a token and its id"},
        {"\"sep\":[\"</s>\",2]", "\"sep\":\"</s>\"", GX_ERR_FORMAT, "\"sep\" is a string; expected an array"},
        {"\"sep\":[\"</s>\",2],", "", GX_ERR_FORMAT, "\"sep\" is missing; expected an array"},
        {"\"sep\":[\"</s>\",2]", "\"sep\":[\"</s>\",2],\"mask\":[\"<mask>\",4]", GX_ERR_UNSUPPORTED,
         "RobertaProcessing has \"mask\", which is not known; supported: type,sep,cls,trim_offsets,add_prefix_space"},
        {"\"sep\":[\"</s>\",2]", "\"sep\":[\"</s>\",2,2]", GX_ERR_FORMAT,
         "\"sep\" is an array of 3, the first a string"},
        // `tokenizers` would read these two as BertProcessing
        {"\"trim_offsets\":true,\"add_prefix_space\":false", "\"add_prefix_space\":false", GX_ERR_FORMAT,
         "\"trim_offsets\" is missing; expected true or false"},
        {"\"trim_offsets\":true,\"add_prefix_space\":false", "\"trim_offsets\":true", GX_ERR_FORMAT,
         "\"add_prefix_space\" is missing; expected true or false"},
        {"\"type\":\"RobertaProcessing\"", "\"type\":\"BertProcessing\"", GX_ERR_UNSUPPORTED,
         "the post_processor is of the type \"BertProcessing\"; supported: ByteLevel, TemplateProcessing, "
         "RobertaProcessing, Sequence, null"},
        {"\"type\":\"RobertaProcessing\"",
         "\"type\":\"Sequence\",\"processors\":[{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",2],"
         "\"cls\":[\"<s>\",0],\"trim_offsets\":true,\"add_prefix_space\":true},{\"type\":\"TemplateProcessing\"}]",
         GX_ERR_UNSUPPORTED, "the post_processor has TemplateProcessing behind another component that frames texts"}};
    GxTokenizer t;
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        refused(&err, open_roberta(&t, changes[i].from, changes[i].to, &err), changes[i].code, "tokenizer.json",
                changes[i].message);
        CHECK(!t.kind && !t.vocabulary, "something is open");
    }
}

// ---- regular expressions -------------------------------------------------------------------------------------------

TEST(a_regular_expression_finds_what_oniguruma_finds_or_is_refused)
{
    static const struct {
        const char *pattern, *text;
        int start, end; // -1: not found; -2: refused
        const char *message;
    } cases[] = {{"\\s+", "ab \t\xC2\x85z", 2, 6, ""},
                 {"\\s", "\xE1\xA0\x8E", -1, -1, ""}, // U+180E
                 {"[^\\s\\p{L}]", "a1", 1, 2, ""},
                 {"[\\S]x", " x\xC2\xA0xyx", 5, 7, ""},
                 {"\\P{N}{2}", "1a2bc", 3, 5, ""},
                 {"(?i:'s|K)", "a'\xC5\xBF", 1, 4, ""}, // the long s
                 {"a$", "a\r\na\nb", 3, 4, ""},
                 {"^b", "a\nb", 2, 3, ""},
                 {"a.", "a\na\r", 2, 4, ""},
                 {"a+?b|a++c", "aab", 0, 3, ""},
                 {"# [#]", "x# #", 1, 4, ""},
                 {"\\[\\]\\{\\}\\-\\^", "[]{}-^", 0, 6, ""},
                 {"[\\]\\[&]+", "a[&]", 1, 4, ""},
                 {"\\p{L}(?=\\p{M})(?!\\p{M}1)", "a\xCC\x81", 0, 1, ""},
                 {"\\d", "", -2, 0, "has \"\\d\" at byte 0; supported escapes"},
                 {"a\\", "", -2, 0, "at byte 1; supported escapes"},
                 {"\\p{Lu}[\\p{Ll}\\p{Lm}]+\\P{Ll}", "aBB\xC4\x81\xC4\x80", 2, 7, ""}, // BāĀ: these two alternate
                 {"[\\p{Lt}\\p{Lo}]", "aA\xC7\x85", 2, 4, ""},
                 {"\\p{Nd}", "", -2, 0, "has \"\\p{Nd}\" at byte 0; supported classes"},
                 {"\\p{L", "", -2, 0, "supported classes"},
                 {"\\pL", "", -2, 0, "supported classes"},
                 {"[a[b]]", "", -2, 0, "at byte 2; a class in a class"},
                 {"[a&&b]", "", -2, 0, "at byte 2; && in a class"},
                 {"[]a]", "", -2, 0, "an empty class"},
                 {"(?i:[a])", "", -2, 0, "classes in (?i:…) are not supported"},
                 {"(?i:(a)\\s)", "", -2, 0, "classes in (?i:…) are not supported"},
                 {"(?<=a)b", "", -2, 0, "supported groups"},
                 {"(?i)a", "", -2, 0, "supported groups"},
                 {"(*FAIL)", "", -2, 0, "supported groups"},
                 {"a{,2}", "", -2, 0, "expected {2}"},
                 {"a{2}+", "", -2, 0, "nothing may follow braces"},
                 {"a*", "", -2, 0, "can match the empty text"},
                 {"(a", "", -2, 0, "cannot be read: missing closing parenthesis"}};
    GxRegexRoom room = GX_ZERO;
    if (!gx_regex_is_built()) SKIP("built without PCRE2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxError err = GX_ZERO;
        GxRegex *r;
        int64_t start = -1, end = -1;
        const GxStatus status = gx_regex_open(&r, cases[i].pattern, "the file", &err);
        if (cases[i].start == -2) {
            CHECK(!r && status != GX_OK && strstr(err.message, cases[i].message), "%s: %s", cases[i].pattern,
                  err.message);
            continue;
        }
        CHECK(status == GX_OK, "%s", err.message);
        if (status != GX_OK) continue;
        gx_regex_find(r, &room, cases[i].text, (int64_t)strlen(cases[i].text), 0, &start, &end, &err);
        CHECK(start == cases[i].start && end == cases[i].end, "%s: %ld to %ld, expected %d to %d", cases[i].pattern,
              (long)start, (long)end, cases[i].start, cases[i].end);
        gx_regex_close(r);
    }
    gx_regex_room_close(&room);
}

TEST(without_pcre2_the_words_are_refused_and_the_rest_works)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    if (gx_regex_is_built()) SKIP("built with PCRE2");
    if (!expect()) return;
    put_pipeline(pipeline_of("gpt2"), NULL, NULL);
    refused(&err, gx_tokenizer_open(&t, at("tokenizer.json"), &err), GX_ERR_UNSUPPORTED, "tokenizer.json",
            "built without PCRE2; install libpcre2-dev");
    const char *file = at("text");
    const GxBpeTraining how = gx_bpe_training(1000);
    put(file, "ab ab", 5);
    refused(&err, gx_bpe_train(&t, &file, 1, &how, &err), GX_ERR_UNSUPPORTED, "text", "built without PCRE2");
    put_pipeline(pipeline_of("llama2"), NULL, NULL);
    CHECK(gx_tokenizer_open(&t, at("tokenizer.json"), &err) == GX_OK, "%s", err.message);
    gx_tokenizer_close(&t);
}

// ---- files ---------------------------------------------------------------------------------------------------------

TEST(what_is_written_is_what_was_read_byte_for_byte)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"};
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    put(at("tokenizer_config.json"), "{ \"pad_token\": {\"content\": \"</s>\"},\n \"bos_token\": \"<s>\" }", 57);
    put(at("chat_template.jinja"), "{{ bos_token }}", 15);
    for (int p = 0; p < wanted.n; p++) {
        GxTokenizer t, again;
        if (!open_pipeline(&t, p)) break;
        mkdir(at("folder"), 0777);
        CHECK(gx_tokenizer_write(&t, at("folder"), &err) == GX_OK &&
                  gx_tokenizer_check(&t, at("folder"), &err) == GX_OK &&
                  gx_tokenizer_open(&again, at("folder"), &err) == GX_OK,
              "%s", err.message);
        for (int i = 0; i < 3; i++) {
            char name[100], *before = get(at(files[i]));
            snprintf(name, sizeof name, "folder/%s", files[i]);
            char *after = get(at(name));
            CHECK(!strcmp(before, after), "%s is another", files[i]);
            free(before), free(after);
        }
        CHECK(!strcmp(t.identity, again.identity) && !memcmp(t.role, again.role, sizeof t.role), "%s, and then %s",
              t.identity, again.identity);
        CHECK(t.role[GX_TOKEN_PAD] == gx_tokenizer_find(&t, "</s>"), "%ld", (long)t.role[GX_TOKEN_PAD]);
        gx_tokenizer_close(&t), gx_tokenizer_close(&again);
        gx_folder_remove(at("folder"), &err);
    }
    unlink(at("tokenizer_config.json")), unlink(at("chat_template.jinja"));
}

TEST(what_gives_other_ids_has_another_identity)
{
    static const char *const changes[][3] = {
        {"llama3", "\"ignore_merges\":true", "\"ignore_merges\":false"},
        {"llama3", "{1,3}", "{1,2}"},
        {"llama3", "\"single\":[{\"SpecialToken\":{\"id\":\"<|end|>\",\"type_id\":0}},", "\"single\":["},
        {"qwen", "{\"type\":\"NFC\"}", "null"},
        {"gpt2", "\"add_prefix_space\":false", "\"add_prefix_space\":true"},
        {"gpt2", "\"lstrip\":true", "\"lstrip\":false"},
        {"smollm", "\"individual_digits\":true", "\"individual_digits\":false"},
        {"removed", "\"invert\":true", "\"invert\":false"},
        {"mistral", "\"first\"", "\"always\""},
        {"llama2", "\"fuse_unk\":true", "\"fuse_unk\":false"},
        {"llama2", "\"byte_fallback\":true", "\"byte_fallback\":false"},
        {"llama2", "\"prepend\":\"▁\"", "\"prepend\":\"▁▁\""},
        {"llama2", "[\"▁\",\"a\"]", "[\"a\",\"▁\"]"}};
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        GxTokenizer t;
        const char *to = changes[i][2];
        put_pipeline(pipeline_of(changes[i][0]), NULL, NULL);
        if (!CHECK(gx_tokenizer_open(&t, root, &err) == GX_OK, "%s", err.message)) return;
        put_pipeline(pipeline_of(changes[i][0]), changes[i][1], !strcmp(to, "[\"a\",\"▁\"]") ? "[\"▁\",\"t\"]" : to);
        refused(&err, gx_tokenizer_check(&t, root, &err), GX_ERR_FORMAT, root, "the same pieces, but other merges");
        gx_tokenizer_close(&t);
    }
}

// As tokenizers has it; 256 bytes alone, and nothing added, are this library's tokenizer of bytes (text/byte_tokens.h).
TEST(a_tokenizer_without_merges_is_read_and_one_without_a_list_of_them_is_refused)
{
    static const int32_t expected[] = {72, 69, 76, 76, 79, 166}; // h e l l o é
    static const char text[] = "hello \xC3\xA9";
    char *json;
    int64_t bytes, n = 0;
    int32_t ids[100];
    GxTokenizer t;
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    CHECK(gx_file_read("data/ref/bpe/byte_level.json", 1 << 22, &json, &bytes, &err) == GX_OK, "%s", err.message);
    GxJson *root_of = NULL;
    CHECK(gx_json_parse(&root_of, json, bytes, "byte_level.json", &err) == GX_OK, "%s", err.message);
    GxJson *model = gx_json_get(root_of, "model");
    for (int lacks = 0; lacks < 2; lacks++) {
        char path[GX_PATH];
        if (lacks) gx_json_remove(model, "merges");
        else gx_json_set(model, "merges", gx_json_new_array(), &err);
        CHECK(gx_path_join(path, root, "tokenizer.json", &err) == GX_OK && gx_json_write(root_of, path, &err) == GX_OK,
              "%s", err.message);
        if (lacks)
            refused(&err, gx_tokenizer_open(&t, root, &err), GX_ERR_FORMAT, root,
                    "\"merges\" is missing; expected an array");
        else if (CHECK(gx_tokenizer_open(&t, root, &err) == GX_OK, "%s", err.message)) {
            CHECK(gx_tokenizer_encode(&t, text, (int64_t)strlen(text), GX_SPECIAL_AS_TOKENS, ids, &n, &err) == GX_OK &&
                      n == 6 && !memcmp(ids, expected, sizeof expected),
                  "%ld tokens: %s", (long)n, err.message);
            gx_tokenizer_close(&t);
        }
    }
    gx_json_free(root_of), free(json);
}

TEST(both_spellings_of_merges_are_the_same)
{
    GxTokenizer pairs, lines;
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    put_pipeline(pipeline_of("llama2"), NULL, NULL);
    CHECK(gx_tokenizer_open(&pairs, root, &err) == GX_OK, "%s", err.message);
    put_pipeline(pipeline_of("llama2"), "[\"▁\",\"a\"]", "\"▁ a\"");
    CHECK(gx_tokenizer_open(&lines, root, &err) == GX_OK, "%s", err.message);
    CHECK(!strcmp(pairs.identity, lines.identity), "%s, %s", pairs.identity, lines.identity);
    gx_tokenizer_close(&pairs), gx_tokenizer_close(&lines);
}

TEST(files_that_are_wrong_are_refused_by_name)
{
    static const struct {
        const char *pipeline, *from, *to;
        GxStatus code;
        const char *message;
    } changes[] = {
        {"qwen", "\"NFC\"", "\"Nmt\"", GX_ERR_UNSUPPORTED,
         "the normalizer is of the type \"Nmt\"; supported: NFC, NFD, NFKC, NFKD, Lowercase, Precompiled, Strip, "
         "Prepend, Replace, Sequence, null"},
        {"gpt2", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"",
         GX_ERR_UNSUPPORTED, "the pre_tokenizer is of the type \"Whitespace\"; supported: ByteLevel, Split"},
        {"gpt2", "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"CTC\"", GX_ERR_UNSUPPORTED,
         "the decoder is of the type \"CTC\""},
        {"gpt2", "\"post_processor\":{\"type\":\"ByteLevel\"", "\"post_processor\":{\"type\":\"BertProcessing\"",
         GX_ERR_UNSUPPORTED, "the post_processor is of the type \"BertProcessing\""},
        {"removed", "\"Removed\"", "\"Contiguous\"", GX_ERR_UNSUPPORTED, "Split has the behavior \"Contiguous\""},
        {"gemma3", "\"invert\":false", "\"invert\":true", GX_ERR_UNSUPPORTED, "MergedWithPrevious, inverted"},
        {"llama2", "{\"String\":\"▁\"}", "{\"Regex\":\"▁\"}", GX_ERR_UNSUPPORTED, "Replace has the Regex \"▁\""},
        {"llama2", "{\"String\":\" \"}", "{\"String\":\"\"}", GX_ERR_FORMAT, "the \"String\" of Replace is empty"},
        {"llama2", "\"stop\":0", "\"stop\":1", GX_ERR_UNSUPPORTED, "Strip has start 1 and stop 1"},
        {"mistral", "\"first\"", "\"last\"", GX_ERR_UNSUPPORTED, "Metaspace has the prepend_scheme \"last\""},
        {"mistral", "\"prepend_scheme\":\"first\"", "\"add_prefix_space\":false,\"prepend_scheme\":\"first\"",
         GX_ERR_FORMAT, "which contradict each other"},
        {"gpt2", "\"dropout\":null", "\"dropout\":0.1", GX_ERR_UNSUPPORTED, "BPE has the dropout 0.1"},
        {"gpt2", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", GX_ERR_UNSUPPORTED,
         "BPE has end_of_word_suffix \"</w>\""},
        {"gpt2", "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"", GX_ERR_UNSUPPORTED,
         "BPE has continuing_subword_prefix \"##\""},
        {"gpt2", "\"unk_token\":null", "\"unk_token\":\"none\"", GX_ERR_FORMAT, "the unk_token is \"none\""},
        {"gpt2", "\"merges\":[\"", "\"merges\":[\"x", GX_ERR_FORMAT, "merge 0 has \"x"},
        {"gpt2", "\"merges\":[", "\"merges\":[\"a\",", GX_ERR_FORMAT, "merge 0 is a string a; expected \"a b\""},
        {"gpt2", "\"merges\":[", "\"merges\":[\"a b c\",", GX_ERR_FORMAT, "merge 0 is a string a b c"},
        {"gpt2", "\"merges\":[", "\"merges\":[[\"a\"],", GX_ERR_FORMAT, "merge 0 is an array"},
        {"gpt2", "\"merges\":[", "\"merges\":[7,", GX_ERR_FORMAT, "merge 0 is an integer"},
        {"gpt2", "\"!\":1,", "\"!\":0,", GX_ERR_FORMAT, "has the id 0, but another piece has it, too"},
        {"gpt2", "\"!\":1,", "\"!\":-1,", GX_ERR_FORMAT, "the id of \"!\" is -1; expected an integer from 0"},
        {"gpt2", "\"single_word\":false", "\"single_word\":true", GX_ERR_UNSUPPORTED, "has single_word true"},
        {"gpt2", "{\"id\":0,\"content\":\"<|end|>\"", "{\"id\":9,\"content\":\"<|end|>\"", GX_ERR_FORMAT,
         "the added token \"<|end|>\" has the id 9; the vocabulary has another"},
        {"gpt2", "\"content\":\"<tool>\"", "\"content\":\"\"", GX_ERR_FORMAT,
         "the \"content\" of an added token is empty"},
        {"llama2", "\"ids\":[1]", "\"ids\":[99999]", GX_ERR_FORMAT, "\"<s>\" has an id that no piece has"},
        {"llama2", "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},", "", GX_ERR_UNSUPPORTED,
         "has A 0 times and B 0 times"},
        {"llama2", "\"type_id\":0", "\"type_id\":2", GX_ERR_UNSUPPORTED, "of type 2"},
        {"llama2", "\"content\":\"▁\"", "\"content\":7", GX_ERR_FORMAT, "\"content\" is an integer"},
        {"smollm", "\"individual_digits\":true", "\"individual\":true", GX_ERR_FORMAT,
         "\"individual_digits\" is missing"},
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

TEST(a_file_that_makes_of_a_byte_more_than_any_tokenizer_does_is_refused)
{
    static const char row[] = "{\"type\":\"Prepend\",\"prepend\":\"▁▁▁▁▁▁▁▁▁▁\"}";
    char list[1000] = "";
    GxTokenizer t;
    GxError err = GX_ZERO;
    NEEDS_LIBRARIES;
    for (int i = 0; i < 4; i++) sprintf(list + strlen(list), "%s,", row);
    sprintf(list + strlen(list), "{\"type\":\"Prepend\",\"prepend\":\"▁\"}");
    put_pipeline(pipeline_of("llama2"), "{\"type\":\"Prepend\",\"prepend\":\"▁\"}", list);
    refused(&err, gx_tokenizer_open(&t, root, &err), GX_ERR_UNSUPPORTED, "tokenizer.json", "a byte may become");
}

// Ids of transformers' ByT5Tokenizer, whose folder has no tokenizer.json; what is saved here has one.
TEST(a_folder_of_a_byt5_has_its_ids_and_is_saved_with_a_tokenizer_json)
{
    static const struct {
        const char *text;
        int32_t ids[8];
        int n;
    } cases[] = {{"a b", {100, 35, 101}, 3},
                 {"a<extra_id_0>b", {100, 259, 101}, 3},
                 {"\xC3\xA9 </s> x", {198, 172, 1, 123}, 4},
                 {"  a  ", {35, 35, 100, 35, 35}, 5},
                 {"<unk>", {2}, 1},
                 {"<extra_id_0> <extra_id_124>", {259, 35, 383}, 3},
                 {"a <pad> b", {100, 0, 101}, 3}};
    GxTokenizer t, again;
    GxError err = GX_ZERO;
    char path[GX_PATH], all[256], back[2048];
    static const char none[] = "{\"tokenizer_class\": \"ByT5Tokenizer\", \"extra_ids\": 100}",
                      usual[] = "{\"tokenizer_class\": \"ByT5Tokenizer\", \"extra_ids\": 125}";
    int32_t ids[256];
    int64_t n, bytes;
    NEEDS_LIBRARIES;
    snprintf(path, sizeof path, "%s", at("byt5"));
    mkdir(path, 0777);
    refused(&err, gx_tokenizer_open(&t, path, &err), GX_ERR_IO, path, "neither tokenizer.json nor vocab.txt");
    put(at("byt5/tokenizer_config.json"), none, sizeof none - 1);
    refused(&err, gx_tokenizer_open(&t, path, &err), GX_ERR_UNSUPPORTED, path, "extra_ids is 100");
    put(at("byt5/tokenizer_config.json"), usual, sizeof usual - 1);
    if (!CHECK(gx_tokenizer_open(&t, path, &err) == GX_OK, "%s", err.message)) return;
    CHECK(t.vocab_size == 384, "%d tokens", t.vocab_size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t length = (int64_t)strlen(cases[i].text);
        CHECK(gx_tokenizer_encode(&t, cases[i].text, length, GX_SPECIAL_AS_TOKENS, ids, &n, &err) == GX_OK, "%s",
              err.message);
        CHECK(n == cases[i].n && !memcmp(ids, cases[i].ids, (size_t)n * sizeof *ids), "\"%s\": %ld ids, the first %d",
              cases[i].text, (long)n, n ? ids[0] : -1);
    }
    int64_t length = 0;
    for (int c = 1; c < 128; c++) all[length++] = (char)c;
    CHECK(gx_tokenizer_encode(&t, all, length, GX_SPECIAL_AS_TOKENS, ids, &n, &err) == GX_OK && n == length, "%ld ids",
          (long)n);
    for (int64_t i = 0; i < n; i++) CHECK(ids[i] == all[i] + 3, "byte %d is %d", all[i], ids[i]);
    CHECK(gx_tokenizer_decode(&t, ids, n, GX_SPECIAL_AS_TOKENS, back, &bytes, &err) == GX_OK && bytes == length &&
              !memcmp(back, all, (size_t)length),
          "%ld bytes come back", (long)bytes);
    CHECK(gx_tokenizer_write(&t, path, &err) == GX_OK && gx_tokenizer_open(&again, path, &err) == GX_OK, "%s",
          err.message);
    CHECK(!strcmp(gx_tokenizer_identity(&t), gx_tokenizer_identity(&again)), "it is another one when it is saved");
    gx_tokenizer_close(&t), gx_tokenizer_close(&again);
}

TEST(pieces_are_known_by_name_and_by_id)
{
    GxTokenizer t;
    char room[8];
    NEEDS_LIBRARIES;
    if (!open_pipeline(&t, 0)) return;
    CHECK(gx_tokenizer_find(&t, "<|end|>") == 0 && gx_tokenizer_is_special(&t, 0) && !gx_tokenizer_continues(&t, 0),
          "end");
    const int32_t the = gx_tokenizer_find(&t, "Ġthe"), e = gx_tokenizer_find(&t, "e"),
                  tool = gx_tokenizer_find(&t, "<tool>");
    CHECK(the > 0 && !gx_tokenizer_continues(&t, the) && e > 0 && gx_tokenizer_continues(&t, e), "%d %d", the, e);
    CHECK(tool == t.vocab_size - 4 && !gx_tokenizer_is_special(&t, tool) && !gx_tokenizer_continues(&t, tool) &&
              !strcmp(gx_tokenizer_piece(&t, tool, room), "<tool>"),
          "%d", tool);
    CHECK(gx_tokenizer_find(&t, "no such piece") == -1 && !gx_tokenizer_piece(&t, t.vocab_size, room), "beyond");
    gx_tokenizer_close(&t);
}

int main(int argc, char **argv)
{
    const int failed = test_in_folder(argc, argv, "test_bpe");
    gx_json_free(wanted.pipelines);
    return failed;
}
