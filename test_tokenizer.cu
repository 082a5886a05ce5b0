// test_tokenizer.cu: WordPiece has the ids of Hugging Face's `tokenizers`: 10,000 strings and every code point, against
// data/ref/wordpiece, which dev/ref/make_tokenizers.py made with that library; its files, its trainer, and the program
// tokenize.
#define GX_NO_MAIN
#include "tokenize.cu"
#include "test/strings.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- what is expected ----------------------------------------------------------------------------------------------

enum { RULES = 5 };
static const char *const rule_names[RULES] = {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase",
                                              "words"};
static struct {
    uint32_t block[RULES][0x1100];
    int has_block[RULES][0x1100];
    int blocks, trained, vocab, frequency, letters, pairs;
    uint64_t pairs_hash;
} wanted;

static void read_block(const char *text)
{
    char name[40];
    unsigned block, hash;
    int rule = 0;
    if (!CHECK(sscanf(text, "%39s %x %x", name, &block, &hash) == 3 && block < 0x1100, "%s", text)) return;
    while (rule < RULES && strcmp(rule_names[rule], name)) rule++;
    if (!CHECK(rule < RULES, "there is no rule %s", name)) return;
    wanted.block[rule][block] = hash, wanted.has_block[rule][block] = 1, wanted.blocks++;
}

static void read_other(const char *line)
{
    unsigned long long hash;
    if (!strncmp(line, "block ", 6)) read_block(line + 6);
    else if (sscanf(line, "pairs %d %llx", &wanted.pairs, &hash) == 2) wanted.pairs_hash = hash;
    else sscanf(line, "trained %d %d %d %d", &wanted.trained, &wanted.vocab, &wanted.frequency, &wanted.letters);
}

static int expect(void) // 0: it cannot be read
{
    if (expected.text[0]) return expected.hashes == STRINGS;
    read_expected(0, "data/ref/wordpiece/expected.txt", 0, read_other);
    for (int i = 0; i < STRINGS; i++) make_string(i);
    return CHECK(expected.hashes == STRINGS && expected.lines > 2000 && expected.traps > 80 && wanted.blocks > 500,
                 "data/ref/wordpiece/expected.txt: %d hashes, %d lines", expected.hashes, expected.lines);
}

// ---- every code point ----------------------------------------------------------------------------------------------

// What the rule makes of a code point, as UTF-8 behind out[n].
static int64_t apply(int rule, uint32_t point, GxCharacters *c, GxCharacters *spare, char *out, int64_t n)
{
    const GxBertNormalizer how = {rule == 0, rule == 1, rule == 2, rule == 3};
    GxError err = GX_ZERO;
    gx_characters_reserve(c, 16, &err);
    c->n = 1, c->c[0] = point;
    if (rule < 4) CHECK(gx_bert_normalize(&how, c, spare, &err) == GX_OK, "%s", err.message);
    else c->n = 3, c->c[0] = 'a', c->c[1] = point, c->c[2] = 'b';
    if (rule < 4)
        for (int64_t i = 0; i < c->n; i++) n += gx_unicode_encode(c->c[i], out + n);
    int64_t length;
    for (int64_t i = 0, k = 0; rule == 4 && (length = gx_bert_word(c->c, c->n, &i)) > 0; i += length, k++) {
        if (k > 0) out[n++] = '|';
        for (int64_t j = i; j < i + length; j++)
            if (j > 0 && j < 2) n += gx_unicode_encode(c->c[j], out + n);
    }
    return n;
}

static void check_block(int rule, int block, GxCharacters *c, GxCharacters *spare)
{
    char *text = (char *)malloc(256 * 32), *same = (char *)malloc(256 * 32);
    int64_t n = 0, m = 0;
    for (uint32_t k = 0; k < 256; k++) {
        const uint32_t point = (uint32_t)block * 256 + k;
        if (point >= 0xD800 && point <= 0xDFFF) continue;
        if (m > 0) n += gx_unicode_encode(0x10FFFF, text + n), m += gx_unicode_encode(0x10FFFF, same + m);
        n = apply(rule, point, c, spare, text, n);
        m += gx_unicode_encode(point, same + m);
    }
    const int changes = n != m || memcmp(text, same, (size_t)n) != 0;
    const uint32_t hash = short_hash(gx_hash(GX_HASH_START, text, n));
    CHECK(changes == wanted.has_block[rule][block], "%s changes something of U+%04X to U+%04X: %d, expected %d",
          rule_names[rule], (unsigned)block * 256, (unsigned)block * 256 + 255, changes, wanted.has_block[rule][block]);
    CHECK(!changes || !wanted.has_block[rule][block] || hash == wanted.block[rule][block],
          "%s makes something else of U+%04X to U+%04X", rule_names[rule], (unsigned)block * 256,
          (unsigned)block * 256 + 255);
    free(text), free(same);
}

TEST(each_rule_makes_of_every_code_point_what_tokenizers_does)
{
    GxCharacters c = GX_ZERO, spare = GX_ZERO;
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    if (!expect()) return;
    for (int rule = 0; rule < RULES; rule++)
        for (int block = 0; block < 0x1100; block++) check_block(rule, block, &c, &spare);
    gx_characters_close(&c);
    gx_characters_close(&spare);
}

TEST(no_character_becomes_more_than_its_bytes)
{
    GxCharacters c = GX_ZERO, spare = GX_ZERO;
    GxError err = GX_ZERO;
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    for (int strips = 0; strips < 2; strips++)
        for (uint32_t point = 1; point < 0x110000; point++) {
            char utf8[4];
            const GxBertNormalizer how = {0, 0, strips, 1};
            if (point >= 0xD800 && point <= 0xDFFF) continue;
            const int bytes = gx_unicode_encode(point, utf8);
            gx_characters_read(&c, utf8, bytes, &err);
            if (c.n != 1 || c.c[0] != point) CHECK(0, "U+%04X is not read back", (unsigned)point);
            gx_bert_normalize(&how, &c, &spare, &err);
            if (c.n > bytes) CHECK(0, "U+%04X: %ld characters of %d bytes", (unsigned)point, (long)c.n, bytes);
        }
    CHECK(err.code == GX_OK, "%s", err.message);
    gx_characters_close(&c);
    gx_characters_close(&spare);
}

TEST(what_is_not_utf8_is_replaced)
{
    static const struct {
        const char *text;
        int characters, replaced;
    } known[] = {{"a\xE2\x82z", 3, 1},
                 {"\xE2\x82", 1, 1},
                 {"\xF0\x9F\x98", 1, 1},
                 {"\xC0\x80", 2, 2},
                 {"\xE0\x80\x80", 3, 3},
                 {"\xED\xA0\x80", 3, 3},
                 {"\xF4\x90\x80\x80", 4, 4},
                 {"\xFF\xFE", 2, 2},
                 {"\x80\x80", 2, 2},
                 {"\xF0\x80\x80\x80", 4, 4},
                 {"\xE2\x82\xAC", 1, 0},
                 {"\xC3\xA9\xC3", 2, 1},
                 {"\xF1\x80\x80\xE1\x80\xC2"
                  "b",
                  4, 3}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        GxCharacters c = GX_ZERO;
        GxError err = GX_ZERO;
        int replaced_n = 0;
        const int64_t n = (int64_t)strlen(known[i].text);
        char *exact = (char *)malloc((size_t)n); // nothing behind it may be read
        memcpy(exact, known[i].text, (size_t)n);
        gx_characters_read(&c, exact, n, &err);
        for (int64_t k = 0; k < c.n; k++) replaced_n += c.c[k] == GX_REPLACEMENT;
        CHECK(c.n == known[i].characters && replaced_n == known[i].replaced, "text %d: %ld characters, %d replaced",
              (int)i, (long)c.n, replaced_n);
        gx_characters_close(&c);
        free(exact);
    }
}

TEST(many_marks_are_put_into_the_same_order_as_few)
{
    enum { N = 500 };
    static const uint32_t marks[] = {0x301, 0x334, 0x345, 0x316, 0x302E, 0x5AE, 0x300};
    uint32_t text[N], out[GX_NFD_MOST * N];
    int order[N];
    int64_t m = 0;
    GxError err = GX_ZERO;
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    for (int i = 0; i < N; i++) text[i] = i ? marks[(i * i) % 7] : 'a';
    for (int i = 0; i < N; i++) order[i] = i;
    // one mark is before another if the decomposition of the two alone says so
    for (int i = 1; i < N; i++)
        for (int k = i; k > 1; k--) {
            const uint32_t two[2] = {text[order[k - 1]], text[order[k]]};
            uint32_t sorted[2 * GX_NFD_MOST];
            gx_unicode_nfd(two, 2, sorted, &m, &err);
            if (sorted[0] == two[0]) break;
            const int other = order[k];
            order[k] = order[k - 1], order[k - 1] = other;
        }
    CHECK(gx_unicode_nfd(text, N, out, &m, &err) == GX_OK && m == N, "%s", err.message);
    for (int i = 0; i < N; i++) CHECK(out[i] == text[order[i]], "mark %d is U+%04X", i, (unsigned)out[i]);
}

// ---- strings -------------------------------------------------------------------------------------------------------

enum { SETTINGS = 6 };
static const char *const settings[SETTINGS] = {
    "\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true",
    "\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":false",
    "\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_accents\":false,\"lowercase\":true",
    "\"clean_text\":true,\"handle_chinese_chars\":false,\"strip_accents\":true,\"lowercase\":false",
    "\"clean_text\":false,\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true",
    "\"clean_text\":false,\"handle_chinese_chars\":false,\"strip_accents\":false,\"lowercase\":false"};

static int open_setting(GxTokenizer *t, int setting)
{
    GxError err = GX_ZERO;
    char *text = get("data/ref/wordpiece/tokenizer.json"), *changed = replaced(text, settings[0], settings[setting]);
    put(at("tokenizer.json"), changed, (int64_t)strlen(changed));
    free(text), free(changed);
    return CHECK(gx_tokenizer_open(t, at("tokenizer.json"), &err) == GX_OK, "%s", err.message);
}

TEST(ten_thousand_strings_have_the_ids_and_the_text_of_tokenizers)
{
    static uint64_t hash[STRINGS];
    int wrong = 0;
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    if (!expect()) return;
    for (int i = 0; i < STRINGS; i++) hash[i] = GX_HASH_START;
    for (int s = 0; s <= SETTINGS; s++) { // the first one again, to decode
        GxTokenizer t;
        if (!open_setting(&t, s % SETTINGS)) return;
        for (int i = 0; i < STRINGS; i++)
            for (int k = 0; k < (s < SETTINGS ? 2 : 1); k++) {
                int64_t n;
                int32_t *ids = encode(&t, &expected.string[i], k ? GX_SPECIAL_AS_TEXT : GX_SPECIAL_AS_TOKENS, &n);
                hash[i] = s < SETTINGS ? hash_ids(hash[i], ids, n) : hash_decoded(hash[i], &t, ids, n);
                free(ids);
            }
        gx_tokenizer_close(&t);
    }
    for (int i = 0; i < STRINGS; i++)
        if (short_hash(hash[i]) != expected.hash[i] && wrong++ < 5)
            CHECK(0, "string %d: \"%.*s\"", i, (int)expected.string[i].n, expected.string[i].p);
    CHECK(wrong == 0, "%d strings have other ids", wrong);
}

TEST(pairs_are_framed_and_cut_as_transformers_does)
{
    GxTokenizer t;
    uint64_t hash = GX_HASH_START;
    int cuts = 0;
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    if (!expect() || !open_setting(&t, 0)) return;
    for (int i = 0; i < wanted.pairs; i++) {
        numbers_state = (uint64_t)i;
        const Bytes *a = &expected.string[below(STRINGS)], *b = &expected.string[below(STRINGS)];
        const int64_t most = 3 + (int64_t)below(40);
        int32_t *ids = (int32_t *)malloc((size_t)most * 4), *types = (int32_t *)malloc((size_t)most * 4);
        GxTokenTexts texts = GX_ZERO;
        int32_t *first = encode(&t, a, GX_SPECIAL_AS_TOKENS, &texts.n_a),
                *second = encode(&t, b, GX_SPECIAL_AS_TOKENS, &texts.n_b);
        texts.a = first, texts.b = second;
        for (int one = 0; one < 2; one++, texts.b = NULL) {
            GxError err = GX_ZERO;
            int64_t n;
            int cut;
            const int64_t all = texts.n_a + (one ? 2 : texts.n_b + 3);
            CHECK(gx_tokenizer_join(&t, &texts, most, ids, types, &n, &cut, &err) == GX_OK, "%s", err.message);
            CHECK(cut == (all > most) && n == gx_min(all, most), "pair %d: %ld of %ld tokens, cut %d", i, (long)n,
                  (long)all, cut);
            hash = hash_ids(hash_ids(hash, ids, n), types, n);
            cuts += cut;
        }
        free(ids), free(types), free(first), free(second);
    }
    CHECK(hash == wanted.pairs_hash && cuts > 100, "%016lx, expected %016lx; %d were cut", (unsigned long)hash,
          (unsigned long)wanted.pairs_hash, cuts);
    gx_tokenizer_close(&t);
}

TEST(a_frame_needs_room_and_its_tokens)
{
    const int32_t one = 7;
    const GxTokenTexts texts = {&one, &one, 1, 1};
    const GxTokenizer bytes = gx_tokenizer_bytes();
    GxTokenizer framed = bytes;
    GxError err = GX_ZERO;
    int32_t ids[8];
    int64_t n;
    framed.role[GX_TOKEN_CLS] = 1, framed.role[GX_TOKEN_SEP] = 2;
    refused(&err, gx_tokenizer_join(&bytes, &texts, 8, ids, NULL, &n, NULL, &err), GX_ERR_ARGUMENT, "byte-256",
            "has no [CLS]");
    refused(&err, gx_tokenizer_join(&framed, &texts, 2, ids, NULL, &n, NULL, &err), GX_ERR_ARGUMENT, "at most 2",
            "around a text are already 3");
    CHECK(gx_tokenizer_join(&framed, &texts, 3, ids, NULL, &n, NULL, &err) == GX_OK && n == 3 && ids[0] == 1 &&
              ids[1] == 2 && ids[2] == 2,
          "only the frame");
}

TEST(a_text_that_is_cut_behind_a_line_has_the_ids_of_the_whole)
{
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    if (!expect()) return;
    const GxTokenizer bytes = gx_tokenizer_bytes();
    CHECK(check_cuts_of(&bytes, "bytes", 40) > 100, "few places");
    for (int s = 0; s < SETTINGS; s++) {
        GxTokenizer t;
        if (!open_setting(&t, s)) return;
        CHECK(check_cuts_of(&t, settings[s], 40) > 100, "setting %d: few places", s);
        gx_tokenizer_close(&t);
    }
}

// ---- the trainer ---------------------------------------------------------------------------------------------------

TEST(a_trained_vocabulary_is_that_of_the_plainest_trainer)
{
    GxTokenizer t, reference;
    GxError err = GX_ZERO;
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    if (!expect() || !open_setting(&reference, 0)) return;
    put_training_text(at("text"), 1, wanted.trained);
    const char *file = at("text");
    GxWordPieceTraining how = gx_wordpiece_training(wanted.vocab);
    how.min_frequency = wanted.frequency, how.limit_alphabet = wanted.letters;
    how.max_word = 1 << 20; // it knows no limit
    if (!CHECK(gx_wordpiece_train(&t, &file, 1, &how, &err) == GX_OK, "%s", err.message)) return;
    CHECK(t.vocab_size == wanted.vocab, "%d pieces", t.vocab_size);
    for (int32_t id = 0; id < t.vocab_size; id++) {
        char room[8];
        const char *ours = gx_tokenizer_piece(&t, id, room), *theirs = gx_tokenizer_piece(&reference, id, room);
        if (!CHECK(theirs && !strcmp(ours, theirs), "piece %ld is \"%s\", expected \"%s\"", (long)id, ours,
                   theirs ? theirs : ""))
            break;
    }
    gx_tokenizer_close(&t);
    gx_tokenizer_close(&reference);
}

TEST(training_ends_where_pairs_are_rare_and_refuses_empty_texts)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    GxWordPieceTraining how = gx_wordpiece_training(1000);
    const char *files[] = {at("one"), at("two")};
    how.normalizer.strip_accents = 0;
    put(files[0], "abab ab", 7);
    put(files[1], " \n", 2);
    CHECK(gx_wordpiece_train(&t, files, 2, &how, &err) == GX_OK, "%s", err.message);
    // a, b, ##a, ##b; ab (twice) and ##ab (once): a pair that occurs once is no piece
    CHECK(t.vocab_size == 10 && gx_tokenizer_find(&t, "ab") == 9, "%d pieces", t.vocab_size);
    gx_tokenizer_close(&t);
    refused(&err, gx_wordpiece_train(&t, files + 1, 1, &how, &err), GX_ERR_FORMAT, "two", "has no words");
    files[1] = at("missing");
    refused(&err, gx_wordpiece_train(&t, files, 2, &how, &err), GX_ERR_IO, "missing", "No such file");
}

// Of a tokenizer's words they are none.
TEST(words_that_are_too_long_train_nothing_and_take_no_time)
{
    enum { LONG = 4 << 20 };
    GxTokenizer t, without;
    GxError err = GX_ZERO;
    int64_t too_long = 0;
    GxWordPieceTraining how = gx_wordpiece_training(1000);
    const char *file = at("long");
    Bytes all = GX_ZERO;
    char *word = (char *)malloc(LONG + 1), hundred[102];
    how.normalizer.strip_accents = 0, how.too_long = &too_long;
    add(&all, "abab ab ab ", 11);
    for (int i = 0; i < 101; i++) hundred[i] = "cd"[i % 2];
    hundred[100] = ' ';
    for (int i = 0; i < 2; i++) add(&all, hundred, 101); // of 100 characters
    put(file, all.p, all.n);
    CHECK(gx_wordpiece_train(&without, &file, 1, &how, &err) == GX_OK && too_long == 0, "%s", err.message);
    hundred[100] = 0;
    CHECK(gx_tokenizer_find(&without, hundred) > 0, "a word of 100 characters is not learned");
    hundred[100] = 'x';
    add(&all, hundred, 101);
    for (int i = 0; i < LONG; i++) word[i] = "xy"[i % 2];
    word[LONG] = ' ';
    add(&all, " ", 1), add(&all, word, LONG + 1), add(&all, word, LONG);
    put(file, all.p, all.n);
    const double begun = gx_seconds();
    CHECK(gx_wordpiece_train(&t, &file, 1, &how, &err) == GX_OK && too_long == 3, "%s, %ld", err.message,
          (long)too_long);
    CHECK(gx_seconds() - begun < 60, "it took %.0f s", gx_seconds() - begun); // counted, it would take hours
    CHECK(!strcmp(t.identity, without.identity), "%s, without long words %s", t.identity, without.identity);
    gx_tokenizer_close(&t), gx_tokenizer_close(&without);
    free(all.p), free(word);
}

TEST(a_vocabulary_has_room_for_its_characters_or_is_refused)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    GxWordPieceTraining how = gx_wordpiece_training(9);
    const char *file = at("letters");
    how.normalizer.strip_accents = 0;
    put(file, "ab ba abc", 9); // a, b, c, ##a, ##b, ##c, and 5 special tokens
    refused(&err, gx_wordpiece_train(&t, &file, 1, &how, &err), GX_ERR_ARGUMENT, "vocab_size is 9",
            "characters of the texts are already 11 pieces; make it at least that, or limit_alphabet smaller than 3");
    how.vocab_size = 10;
    refused(&err, gx_wordpiece_train(&t, &file, 1, &how, &err), GX_ERR_ARGUMENT, "vocab_size is 10", "at least that");
    how.vocab_size = 11;
    CHECK(gx_wordpiece_train(&t, &file, 1, &how, &err) == GX_OK && t.vocab_size == 11, "%s", err.message);
    gx_tokenizer_close(&t);
    how.vocab_size = 9, how.limit_alphabet = 2;
    CHECK(gx_wordpiece_train(&t, &file, 1, &how, &err) == GX_OK && t.vocab_size == 9, "%s", err.message);
    gx_tokenizer_close(&t);
}

// Beyond the first chunk that is read at once, too.
TEST(texts_to_train_on_that_are_none_are_refused_with_their_place)
{
    enum { LINES = 300000 };
    GxTokenizer t;
    GxError err = GX_ZERO;
    GxWordPieceTraining how = gx_wordpiece_training(1000);
    const char *files[] = {at("good"), at("bad")};
    char *text = (char *)malloc(5 * LINES + 8);
    how.normalizer.strip_accents = 0;
    put(files[0], "a b\n", 4);
    put(files[1], "a\nb\0c\n", 6);
    refused(&err, gx_wordpiece_train(&t, files, 2, &how, &err), GX_ERR_FORMAT, "bad:2:", "a byte of value 0");
    for (int i = 0; i < LINES; i++) memcpy(text + 5 * i, "\xC3\xA4 b\n", 5);
    memcpy(text + 5 * LINES, "a \xC3", 3);
    put(files[1], text, 5 * LINES + 3); // a character that is cut off
    refused(&err, gx_wordpiece_train(&t, files, 2, &how, &err), GX_ERR_FORMAT,
            "bad:300001:", "the byte 0xC3 at 1500002 is not UTF-8");
    put(files[1], text, 5 * LINES);
    CHECK(gx_wordpiece_train(&t, files, 2, &how, &err) == GX_OK, "%s", err.message);
    gx_tokenizer_close(&t);
    free(text);
}

// ---- files ---------------------------------------------------------------------------------------------------------

TEST(what_is_written_opens_again_as_the_same)
{
    GxTokenizer t, again;
    GxError err = GX_ZERO;
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    for (int s = 0; s < SETTINGS; s++) {
        if (!open_setting(&t, s)) return;
        mkdir(at("folder"), 0777);
        CHECK(gx_tokenizer_write(&t, at("folder"), &err) == GX_OK &&
                  gx_tokenizer_check(&t, at("folder"), &err) == GX_OK,
              "%s", err.message);
        CHECK(gx_tokenizer_open(&again, at("folder"), &err) == GX_OK, "%s", err.message);
        CHECK(!strcmp(t.identity, again.identity) && t.vocab_size == again.vocab_size && t.longest == again.longest &&
                  !memcmp(t.role, again.role, sizeof t.role),
              "%s, and then %s", t.identity, again.identity);
        gx_tokenizer_close(&again);
        unlink(at("folder/tokenizer.json")); // vocab.txt and tokenizer_config.json are enough, if text is cleaned
        CHECK(gx_tokenizer_open(&again, at("folder"), &err) == GX_OK, "%s", err.message);
        CHECK(!strcmp(t.identity, again.identity) == (s < 4), "setting %d: %s, of vocab.txt %s", s, t.identity,
              again.identity);
        gx_tokenizer_close(&again);
        gx_tokenizer_close(&t);
        gx_folder_remove(at("folder"), &err);
    }
}

TEST(special_tokens_and_continuing_pieces_are_known)
{
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    GxTokenizer t;
    char room[8];
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    if (!expect() || !open_setting(&t, 0)) return;
    for (int i = 0; i < GX_TOKEN_ROLES; i++)
        CHECK(t.role[i] == i && gx_tokenizer_is_special(&t, i) && gx_tokenizer_find(&t, names[i]) == i, "%s", names[i]);
    CHECK(t.vocab_size == wanted.vocab + 3, "%d", t.vocab_size);
    for (int32_t id = 5; id < wanted.vocab; id++) {
        const char *piece = gx_tokenizer_piece(&t, id, room);
        CHECK(gx_tokenizer_continues(&t, id) == !strncmp(piece, "##", 2) && !gx_tokenizer_is_special(&t, id), "%s",
              piece);
        CHECK(gx_tokenizer_find(&t, piece) == id, "%s", piece);
    }
    CHECK(gx_tokenizer_is_special(&t, wanted.vocab) && !gx_tokenizer_is_special(&t, wanted.vocab + 1),
          "<keep> is special, Foo is not");
    CHECK(!gx_tokenizer_piece(&t, t.vocab_size, room) && !gx_tokenizer_piece(&t, -1, room) &&
              gx_tokenizer_find(&t, "no such piece") == -1,
          "beyond the vocabulary");
    gx_tokenizer_close(&t);
}

TEST(files_that_are_wrong_are_refused_by_name)
{
    static const struct {
        const char *from, *to;
        GxStatus code;
        const char *message;
    } changes[] = {
        {"\"BertNormalizer\"", "\"NFC\"", GX_ERR_UNSUPPORTED, "the normalizer is of the type \"NFC\"; supported"},
        {"\"BertPreTokenizer\"", "\"Whitespace\"", GX_ERR_UNSUPPORTED,
         "the pre_tokenizer is of the type \"Whitespace\""},
        {"{\"type\":\"BertPreTokenizer\"}", "null", GX_ERR_FORMAT, "\"pre_tokenizer\" is missing"},
        {"\"TemplateProcessing\"", "\"RobertaProcessing\"", GX_ERR_UNSUPPORTED, "the post_processor is of the type"},
        {"\"type_id\":1", "\"type_id\":0", GX_ERR_UNSUPPORTED, "the post_processor is not BERT's"},
        {"\"decoder\":{\"type\":\"WordPiece\"", "\"decoder\":{\"type\":\"Fuse\"", GX_ERR_UNSUPPORTED, "the decoder is"},
        {"\"prefix\":\"##\"", "\"prefix\":\"@@\"", GX_ERR_UNSUPPORTED, "the decoder's prefix is \"@@\""},
        {"\"model\":{\"type\":\"WordPiece\"", "\"model\":{\"type\":\"WordLevel\"", GX_ERR_UNSUPPORTED,
         "the model is \"WordLevel\"; supported"},
        {"\"model\":{\"type\":\"WordPiece\"", "\"model\":{\"merges\":[\"a b\"],\"type\":\"BPE\"", GX_ERR_UNSUPPORTED,
         "BPE has continuing_subword_prefix \"##\"; supported: none"},
        {"\"model\":{\"type\":\"WordPiece\",", "\"model\":{", GX_ERR_FORMAT, "\"type\" is missing"},
        {"\"continuing_subword_prefix\":\"##\"", "\"continuing_subword_prefix\":\"\"", GX_ERR_UNSUPPORTED,
         "continuing_subword_prefix is \"\""},
        {"\"max_input_chars_per_word\":100", "\"max_input_chars_per_word\":-1", GX_ERR_FORMAT, "is -1"},
        {"\"unk_token\":\"[UNK]\"", "\"unk_token\":\"none\"", GX_ERR_FORMAT, "the vocabulary has no [UNK]"},
        {"\"[UNK]\":1", "\"[UNK]\":0", GX_ERR_FORMAT, "has the id 0, but another piece has it, too"},
        {"\"[UNK]\":1", "\"[UNK]\":-1", GX_ERR_FORMAT, "expected an integer from 0"},
        {"\"[UNK]\":1", "\"[UNK]\":99999999", GX_ERR_FORMAT, "expected an integer from 0"},
        {"\"[UNK]\":1", "\"[UNK]\":\"1\"", GX_ERR_FORMAT, "is a string; expected an integer"},
        {"{\"id\":1,\"content\":\"[UNK]\"", "{\"id\":7,\"content\":\"[UNK]\"", GX_ERR_FORMAT,
         "the added token \"[UNK]\" has the id 7; the vocabulary has another"},
        {"{\"id\":2500,", "{\"id\":9,", GX_ERR_FORMAT, "the added token \"<keep>\" has the id 9; expected an id"},
        {"\"content\":\"<keep>\"", "\"content\":\"\"", GX_ERR_FORMAT, "an added token is empty"},
        {"\"content\":\"Foo B\u00e4r\"", "\"content\":\"\u00ad\"", GX_ERR_FORMAT, "is empty after normalization"},
        {"\"single_word\":false", "\"single_word\":true", GX_ERR_UNSUPPORTED, "has single_word true"},
        {"\"lowercase\":true", "\"lowercase\":1", GX_ERR_FORMAT, "\"lowercase\" is an integer; expected true or false"},
        {"\"clean_text\":true,", "", GX_ERR_FORMAT, "\"clean_text\" is missing"},
        {"{\"version\"", "[{\"version\"", GX_ERR_FORMAT, "tokenizer.json:1:"},
    };
    GxTokenizer t;
    GxError err = GX_ZERO;
    char *text = get("data/ref/wordpiece/tokenizer.json");
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *changed = replaced(text, changes[i].from, changes[i].to);
        put(at("tokenizer.json"), changed, (int64_t)strlen(changed));
        refused(&err, gx_tokenizer_open(&t, root, &err), changes[i].code, "tokenizer.json", changes[i].message);
        CHECK(!t.kind && !t.vocabulary, "something is open");
        free(changed);
    }
    free(text);
    unlink(at("tokenizer.json"));
    refused(&err, gx_tokenizer_open(&t, root, &err), GX_ERR_IO, root, "holds no tokenizer");
    refused(&err, gx_tokenizer_open(&t, at("none.json"), &err), GX_ERR_IO, "none.json", "No such file");
}

TEST(a_vocab_txt_is_a_piece_per_line)
{
    static const struct {
        const char *text, *config;
        GxStatus code;
        const char *message;
    } cases[] = {
        {"", NULL, GX_ERR_FORMAT, "vocab.txt is empty"},
        {"a\n[PAD]\n", NULL, GX_ERR_FORMAT, "has no [UNK]"},
        {"[UNK]\n\xff\n", NULL, GX_ERR_FORMAT, "vocab.txt:2: this is not UTF-8"},
        {"[UNK]\n\xF3\x85\xA1\n", NULL, GX_ERR_FORMAT, "vocab.txt:2: this is not UTF-8"}, // one byte is missing
        {"a\n",
         "{\"added_tokens_decoder\": {\"1\": {\"content\": \"[UNK]\", \"single_word\": false, \"lstrip\": false, "
         "\"rstrip\": false, \"normalized\": false, \"special\": true}}}",
         GX_ERR_FORMAT, "vocab.txt: the vocabulary has no [UNK]"},
        {"[UNK]\n\xEF\xBF\xBD\n", NULL, GX_OK, ""},
        {"[UNK]\n", "{\"do_lower_case\": 3}", GX_ERR_FORMAT, "tokenizer_config.json: \"do_lower_case\""},
        {"[UNK]\n", "{\"do_basic_tokenize\": false}", GX_ERR_UNSUPPORTED, "do_basic_tokenize is false"},
        {"[UNK]\n", "{\"mask_token\": 3}", GX_ERR_FORMAT, "\"mask_token\" is an integer; expected a string"},
        {"[UNK]\n", "{\"sep_token\": \"</s>\"}", GX_ERR_FORMAT, "sep_token is \"</s>\", which the vocabulary"},
        {"[UNK]\n[SEP]\n",
         "{\"sep_token\": null, \"a\": \"x\\\"1\", \"do_lower_case\": false, "
         "\"model_max_length\": 1000000000000000019884624838656}",
         GX_OK, ""},
        {"a\nunknown\r\nB \nb\n##b\nb", "{\"do_lower_case\": false, \"unk_token\": {\"content\": \"unknown\"}}", GX_OK,
         ""}};
    GxTokenizer t;
    GxError err = GX_ZERO;
    int32_t ids[20];
    int64_t n;
    unlink(at("tokenizer.json"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(at("vocab.txt"), cases[i].text, (int64_t)strlen(cases[i].text));
        unlink(at("tokenizer_config.json"));
        if (cases[i].config) put(at("tokenizer_config.json"), cases[i].config, (int64_t)strlen(cases[i].config));
        const GxStatus status = gx_tokenizer_open(&t, root, &err);
        if (cases[i].code != GX_OK) refused(&err, status, cases[i].code, "", cases[i].message);
        else CHECK(status == GX_OK && t.role[GX_TOKEN_SEP] == -1, "%s", err.message);
        if (cases[i].code == GX_OK && i + 1 < sizeof cases / sizeof *cases) gx_tokenizer_close(&t);
    }
    // the last b counts; B keeps its case
    CHECK(gx_tokenizer_encode(&t, "a b B bb c", 10, GX_SPECIAL_AS_TOKENS, ids, &n, &err) == GX_OK && n == 6 &&
              ids[0] == 0 && ids[1] == 5 && ids[2] == 2 && ids[3] == 5 && ids[4] == 4 && ids[5] == 1,
          "%ld ids", (long)n);
    CHECK(t.role[GX_TOKEN_UNK] == 1 && t.role[GX_TOKEN_MASK] == -1 && gx_tokenizer_is_special(&t, 1), "roles");
    refused(&err, gx_tokenizer_decode(&t, (const int32_t[]){3}, 1, GX_SPECIAL_AS_TOKENS, (char[64]){0}, &n, &err),
            GX_ERR_ARGUMENT, "3", "which no piece of the vocabulary has");
    gx_tokenizer_close(&t);
    unlink(at("vocab.txt")), unlink(at("tokenizer_config.json"));
}

// What `tokenizers` 0.23 gives.
TEST(a_piece_may_have_a_character_of_value_0)
{
    static const struct {
        const char *json, *text;
        int64_t bytes;
        int32_t ids[10];
        int n;
        int32_t back[6];
        int back_n;
        const char *decoded;
        int64_t decoded_n;
    } cases[] = {
        {"{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, "
         "\"decoder\": null, \"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, "
         "\"\\u0000\": 1, \"a\": 2, \"b\": 3, \"\\u0000a\": 4, \"b\\u0000a\": 5}, \"merges\": [[\"\\u0000\", "
         "\"a\"], \"b \\u0000a\"]}}",
         "ba\0b\0axa\0",
         9,
         {3, 2, 1, 5, 0, 2, 1},
         7,
         {1, 2, 4, 5},
         4,
         "\0 a \0a b\0a",
         10},
        {"{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, "
         "\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", "
         "0.0], [\"\\u0000\", -2.0], [\"a\", -1.0], [\"b\", -1.5], [\"\\u0000a\", -2.5]]}}",
         "ba\0b\0axa\0",
         9,
         {3, 2, 1, 3, 4, 0, 2, 1},
         8,
         {1, 2, 4, 3},
         4,
         "\0a\0ab",
         5},
        {"{\"added_tokens\": [{\"id\": 8, \"content\": \"x\\u0000y\", \"single_word\": false, \"lstrip\": false, "
         "\"rstrip\": false, \"normalized\": false, \"special\": false}], \"normalizer\": null, \"pre_tokenizer\": "
         "{\"type\": \"BertPreTokenizer\"}, \"post_processor\": null, \"decoder\": {\"type\": \"WordPiece\", "
         "\"prefix\": \"##\", \"cleanup\": true}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", "
         "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100, \"vocab\": {\"[UNK]\": 0, "
         "\"[CLS]\": 1, \"[SEP]\": 2, \"a\": 3, \"##\\u0000\": 4, \"\\u0000\": 5, \"##b\": 6, \"a\\u0000b\": 7}}}",
         "ab a\0b \0 a\0 bx\0ya",
         17,
         {3, 6, 7, 5, 3, 4, 0, 8, 3},
         9,
         {3, 4, 5, 6, 7, 8},
         6,
         "a\0 \0b a\0b x\0y",
         13}};
    GxError err = GX_ZERO;
    GxTokenizer t;
    int32_t ids[64];
    char text[256];
    int64_t n;
    unlink(at("tokenizer_config.json")), unlink(at("vocab.txt"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(at("tokenizer.json"), cases[i].json, (int64_t)strlen(cases[i].json));
        for (int again = 0; again < 2; again++) { // as it was written here, too
            if (!CHECK(gx_tokenizer_open(&t, root, &err) == GX_OK, "case %d: %s", (int)i, err.message)) return;
            GxStatus status =
                gx_tokenizer_encode(&t, cases[i].text, cases[i].bytes, GX_SPECIAL_AS_TOKENS, ids, &n, &err);
            CHECK(status == GX_OK && n == cases[i].n && !memcmp(ids, cases[i].ids, (size_t)n * sizeof *ids),
                  "case %d: %ld ids, %d %d %d %d %d; %s", (int)i, (long)n, ids[0], ids[1], ids[2], ids[3], ids[4],
                  err.message);
            CHECK(gx_tokenizer_decode(&t, cases[i].back, cases[i].back_n, GX_SPECIAL_AS_TOKENS, text, &n, &err) ==
                          GX_OK &&
                      n == cases[i].decoded_n && !memcmp(text, cases[i].decoded, (size_t)n),
                  "case %d: %ld bytes; %s", (int)i, (long)n, err.message);
            CHECK(gx_tokenizer_write(&t, root, &err) == GX_OK && gx_tokenizer_check(&t, root, &err) == GX_OK, "%s",
                  err.message);
            gx_tokenizer_close(&t);
        }
        unlink(at("tokenizer_config.json"));
    }
    CHECK(!gx_path_is_file(at("vocab.txt")), "lines cannot have it");
    char *json = get(at("tokenizer.json")), *both = replaced(json, "\"##b\"", "\"\\uDBFF\\udfff\"");
    put(at("tokenizer.json"), both, (int64_t)strlen(both));
    refused(&err, gx_tokenizer_open(&t, root, &err), GX_ERR_UNSUPPORTED, "tokenizer.json",
            "both U+0000 and U+10FFFF; only one of the two is supported");
    free(json), free(both);
    unlink(at("tokenizer.json"));
}

TEST(tokenizer_config_is_read_by_one_reader_for_all)
{
    static const char text[] = "{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": \"</s>\", "
                               "\"pad_token\": {\"content\": \"<pad>\"}, \"bos_token\": null, \"mask_token\": 3}";
    GxError err = GX_ZERO;
    GxJson *json = NULL;
    unlink(at("tokenizer_config.json"));
    CHECK(gx_tokenizer_config_read(&json, root, &err) == GX_OK && !json &&
              !gx_tokenizer_config_token(json, "eos_token"),
          "no file: %s", err.message);
    put(at("tokenizer_config.json"), text, (int64_t)strlen(text));
    CHECK(gx_tokenizer_config_read(&json, root, &err) == GX_OK, "%s", err.message);
    CHECK(gx_json_double(gx_json_get(json, "model_max_length")) == 1e30, "model_max_length");
    const char *end = gx_tokenizer_config_token(json, "eos_token"), *pad = gx_tokenizer_config_token(json, "pad_token");
    CHECK(end && !strcmp(end, "</s>") && pad && !strcmp(pad, "<pad>"), "%s, %s", end, pad);
    CHECK(!gx_tokenizer_config_token(json, "bos_token") && !gx_tokenizer_config_token(json, "mask_token") &&
              gx_json_type(gx_tokenizer_config_value(json, "bos_token")) == GX_JSON_NULL &&
              gx_json_type(gx_tokenizer_config_value(json, "mask_token")) == GX_JSON_INT &&
              !gx_tokenizer_config_value(json, "unk_token"),
          "null, a number, nothing");
    gx_json_free(json);
    put(at("tokenizer_config.json"), "[1]", 3);
    refused(&err, gx_tokenizer_config_read(&json, root, &err), GX_ERR_FORMAT, "tokenizer_config.json holds an array",
            "an array");
    unlink(at("tokenizer_config.json"));
}

// A run that saves another chat template takes the old one out of the file; what else is in there stays.
TEST(tokenizer_config_with_a_character_of_value_0_is_written_as_it_was_read)
{
    static const char text[] = "{\"chat_template\": \"old\", \"x\": \"a\\u0000b\"}";
    GxError err = GX_ZERO;
    char *now = NULL;
    int64_t bytes;
    put(at("tokenizer_config.json"), text, (int64_t)strlen(text));
    CHECK(gx_chat_save_jinja("new", root, &err) == GX_OK, "%s", err.message);
    CHECK(gx_file_read(at("tokenizer_config.json"), 1000, &now, &bytes, &err) == GX_OK, "%s", err.message);
    CHECK(now && !strcmp(now, "{\n  \"x\": \"a\\u0000b\"\n}\n"), "%s", now);
    free(now);
    unlink(at("tokenizer_config.json")), unlink(at("chat_template.jinja"));
}

TEST(names_of_special_tokens_in_a_text_are_as_tokenizer_config_says_and_that_is_written)
{
    static const char *const config[] = {NULL, "{}", "{\"split_special_tokens\": false}",
                                         "{\"split_special_tokens\": true}", "{\"split_special_tokens\": 1}"};
    GxTokenizer t;
    GxError err = GX_ZERO;
    int32_t ids[20], types[20];
    int64_t n;
    put(at("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n[\nsep\n]\n", 34);
    for (int i = 0; i < 5; i++) {
        unlink(at("tokenizer.json")), unlink(at("tokenizer_config.json"));
        if (config[i]) put(at("tokenizer_config.json"), config[i], (int64_t)strlen(config[i]));
        const GxStatus status = gx_tokenizer_open(&t, root, &err);
        if (i == 4) {
            refused(&err, status, GX_ERR_FORMAT, "tokenizer_config.json", "\"split_special_tokens\" is an integer");
            break;
        }
        if (!CHECK(status == GX_OK, "%s", err.message)) return;
        for (int again = 0; again < 3; again++) { // as it is written, too; at last the other way round
            const int splits = (i == 3) != (again == 2);
            CHECK(gx_tokenizer_encode_framed(&t, "a[SEP]", 6, 20, ids, types, &n, NULL, &err) == GX_OK, "%s",
                  err.message);
            CHECK(splits ? n == 6 && ids[2] == 5 && ids[3] == 6 && ids[4] == 7 : n == 4 && ids[2] == 3,
                  "config %d, round %d: %ld ids", i, again, (long)n);
            t.splits_special = again == 1 ? !t.splits_special : t.splits_special;
            CHECK(gx_tokenizer_write(&t, root, &err) == GX_OK, "%s", err.message);
            gx_tokenizer_close(&t);
            if (!CHECK(gx_tokenizer_open(&t, root, &err) == GX_OK, "%s", err.message)) return;
        }
        gx_tokenizer_close(&t);
    }
    unlink(at("vocab.txt")), unlink(at("tokenizer.json")), unlink(at("tokenizer_config.json"));
}

TEST(another_tokenizer_in_the_folder_is_told_apart)
{
    GxTokenizer t, other;
    GxError err = GX_ZERO;
    if (!gx_unicode_has_nfd()) SKIP("built without utf8proc");
    if (!open_setting(&t, 0)) return;
    if (!open_setting(&other, 1)) return; // root holds this one now
    CHECK(strcmp(t.identity, other.identity) != 0, "%s", t.identity);
    refused(&err, gx_tokenizer_check(&t, root, &err), GX_ERR_FORMAT, root, "the same pieces, but other settings");
    CHECK(gx_tokenizer_check(&other, root, &err) == GX_OK, "%s", err.message);
    char *text = get(at("tokenizer.json")), *changed = replaced(text, "\"[UNK]\":1", "\"unk!\":2600, \"[UNK]\":1");
    put(at("tokenizer.json"), changed, (int64_t)strlen(changed));
    refused(&err, gx_tokenizer_check(&other, root, &err), GX_ERR_FORMAT, root, "2601 pieces there and 2503 here");
    free(text), free(changed);
    gx_tokenizer_close(&t);
    gx_tokenizer_close(&other);
    const GxTokenizer bytes = gx_tokenizer_bytes();
    CHECK(gx_tokenizer_write(&bytes, root, &err) == GX_OK && gx_tokenizer_open(&other, root, &err) == GX_OK &&
              other.kind == bytes.kind && !strcmp(other.identity, "byte-256"),
          "bytes: %s", err.message);
    unlink(at("tokenizer.json")), unlink(at("tokenizer_config.json"));
}

// ---- the program ---------------------------------------------------------------------------------------------------

static GxStatus run_program(const char *output_dir, const char *text, GxError *err)
{
    Options o = GX_ZERO;
    GxConfig c;
    gx_config_open(&c);
    gx_config_add(&c, "training", GX_FIELDS(training), &o, err);
    gx_config_add(&c, "wordpiece", GX_FIELDS(training_wordpiece), &o, err);
    gx_config_add(&c, "showing", GX_FIELDS(showing), &o, err);
    snprintf(o.train, sizeof o.train, "%s", text);
    snprintf(o.output_dir, sizeof o.output_dir, "%s", output_dir);
    snprintf(o.strip_accents, sizeof o.strip_accents, "false");
    o.vocab_size = 100;
    return run(&o, &c, err);
}

TEST(the_program_writes_a_whole_folder_or_nothing)
{
    static const char text[] = "some words, some more words, and some words again";
    struct rlimit before, limit;
    GxError err = GX_ZERO;
    GxTokenizer t;
    char list[2 * GX_PATH];
    put(at("words"), text, (int64_t)strlen(text));
    snprintf(list, sizeof list, "%s,%s", at("words"), at("words"));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before, limit.rlim_cur = 500; // the disk is full
    setrlimit(RLIMIT_FSIZE, &limit);
    refused(&err, run_program(at("new"), list, &err), GX_ERR_IO, "new.gx-new", "cannot write");
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(!gx_path_is_folder(at("new")) && !gx_path_is_folder(at("new.gx-new")), "something is left");
    refused(&err, run_program(at("new"), at("nothing"), &err), GX_ERR_IO, "nothing", "No such file");
    CHECK(!gx_path_is_folder(at("new")) && !gx_path_is_folder(at("new.gx-new")), "something is left");
    refused(&err, run_program(at("words"), list, &err), GX_ERR_ARGUMENT, "words",
            "is a file; expected an empty folder");
    refused(&err, run_program(at("words/new"), list, &err), GX_ERR_IO, "words", "a file of that name is there");
    CHECK(run_program(at("new"), list, &err) == GX_OK, "%s", err.message);
    CHECK(gx_tokenizer_open(&t, at("new"), &err) == GX_OK && gx_tokenizer_find(&t, "words") > 0, "%s", err.message);
    gx_tokenizer_close(&t);
    refused(&err, run_program(at("new"), list, &err), GX_ERR_ARGUMENT, "new", "is not empty");
    refused(&err, run_program("", list, &err), GX_ERR_ARGUMENT, "--output_dir", "is missing");
    refused(&err, run_program(at("newer"), "a,,b", &err), GX_ERR_ARGUMENT, "--train", "commas");
}

// As main does, with flags after the program's name.
static GxStatus run_flags(const char *const *flags, int n, GxError *err)
{
    static Options o;
    static GxConfig c;
    char *argv[20];
    argv[0] = (char *)(uintptr_t) "tokenize";
    for (int i = 0; i < n; i++) argv[i + 1] = (char *)(uintptr_t)flags[i];
    gx_config_open(&c);
    gx_config_add(&c, "training", GX_FIELDS(training), &o, err);
    gx_config_add(&c, "wordpiece", GX_FIELDS(training_wordpiece), &o, err);
    gx_config_add(&c, "files of tokens", GX_FIELDS(files_of_tokens), &o, err);
    gx_config_add(&c, "showing", GX_FIELDS(showing), &o, err);
    GX_TRY(gx_config_read_args(&c, n + 1, argv, err));
    return run(&o, &c, err);
}

TEST(a_list_of_texts_is_refused_as_a_corpus)
{
    GxError err = GX_ZERO;
    char list[2 * GX_PATH + 1], output[GX_PATH], named[GX_PATH];
    put(at("words"), "some words", 10), put(at("more,words"), "more words", 10);
    snprintf(list, sizeof list, "%s,%s", at("words"), at("words"));
    snprintf(output, sizeof output, "%s", at("list.tokens")), snprintf(named, sizeof named, "%s", at("more,words"));
    const char *flags[] = {"--tokenizer", "bytes", "--corpus", list, "--output_file", output};
    refused(&err, run_flags(flags, 6, &err), GX_ERR_ARGUMENT, "--corpus", "expected one file or folder");
    flags[3] = named; // a name with a comma in it
    CHECK(run_flags(flags, 6, &err) == GX_OK && gx_path_is_file(output), "%s", err.message);
}

// What train_llama reads of a file of conversations, once: --corpus with a chat template.
TEST(a_file_of_conversations_becomes_one_of_tokens_with_what_is_learned)
{
    static const char chats[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}, {\"role\": \"assistant\", \"content\": "
        "\"Hello.\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Again\"}, {\"role\": \"assistant\", \"content\": "
        "\"Yes.\"}, "
        "{\"role\": \"user\", \"content\": \"And\"}, {\"role\": \"assistant\", \"content\": \"No.\"}]}\n";
    char input[GX_PATH], output[GX_PATH];
    GxError err = GX_ZERO;
    GxTokenFile f;
    int fd;
    int64_t bytes;
    snprintf(input, sizeof input, "%s", at("chats.jsonl")), snprintf(output, sizeof output, "%s", at("chats.tokens"));
    put(input, chats, sizeof chats - 1);
    const char *flags[] = {"--tokenizer", "bytes",           "--corpus", input,       "--output_file",
                           output,        "--chat_template", "chatml",   "--seq_len", "100"};
    if (!CHECK(run_flags(flags, 10, &err) == GX_OK, "%s", err.message) ||
        !CHECK(gx_file_open(output, &fd, &bytes, &err) == GX_OK, "%s", err.message))
        return;
    if (CHECK(gx_token_file_open(&f, fd, output, bytes, &err) == GX_OK, "%s", err.message)) {
        CHECK(f.version == 4 && f.documents == 2 && f.has_mask && f.chats.seq_len == 100 && f.chats.counts.n == 2 &&
                  f.chats.counts.shortened == 1 && !strcmp(f.chats.format, "chatml"),
              "version %d, %ld documents, %ld shortened", f.version, (long)f.documents, (long)f.chats.counts.shortened);
        gx_token_file_close(&f);
    }
    close(fd), unlink(output);
    flags[7] = "auto";
    refused(&err, run_flags(flags, 10, &err), GX_ERR_ARGUMENT, "chats.jsonl:1:", "has a chat template");
    flags[7] = "nonesuch";
    refused(&err, run_flags(flags, 10, &err), GX_ERR_ARGUMENT, "chat_template is \"nonesuch\"", "neither");
    flags[7] = "chatml", flags[8] = "--chat_date", flags[9] = "2024-07-26";
    refused(&err, run_flags(flags, 10, &err), GX_ERR_ARGUMENT, "--chat_date changes nothing", "chatml");
    put(at("words"), "some words", 10);
    snprintf(input, sizeof input, "%s", at("words"));
    refused(&err, run_flags(flags, 8, &err), GX_ERR_ARGUMENT, "--chat_template is for conversations", "leave it out");
}

TEST(what_another_process_is_writing_is_left_to_it)
{
    GxError err = GX_ZERO;
    GxClaim claim;
    char words[GX_PATH], output[GX_PATH];
    snprintf(words, sizeof words, "%s", at("words")), snprintf(output, sizeof output, "%s", at("claimed"));
    put(words, "some words", 10);
    const char *flags[] = {"--tokenizer", "bytes", "--corpus", words, "--output_file", output};
    CHECK(gx_claim_file(&claim, output, &err) == GX_OK, "%s", err.message);
    refused(&err, run_flags(flags, 6, &err), GX_ERR_ARGUMENT, "claimed", "is being written by process");
    refused(&err, run_program(output, words, &err), GX_ERR_ARGUMENT, "claimed", "is being written by process");
    gx_claim_end(&claim);
    CHECK(mkfifo(output, 0600) == 0, "no pipe");
    refused(&err, run_flags(flags, 6, &err), GX_ERR_IO, "claimed", "is a pipe, which cannot be written to");
    CHECK(unlink(output) == 0 && symlink("nowhere", output) == 0, "no link");
    refused(&err, run_flags(flags, 6, &err), GX_ERR_IO, "claimed", "is a broken link");
    refused(&err, run_program(output, words, &err), GX_ERR_ARGUMENT, "claimed", "is a broken link");
    CHECK(!gx_path_is_file(at("nowhere")) && unlink(output) == 0, "what the link leads to was made");
    CHECK(run_flags(flags, 6, &err) == GX_OK && gx_path_is_file(output), "%s", err.message);
    refused(&err, run_flags(flags, 6, &err), GX_ERR_ARGUMENT, "claimed", "already exists");
    unlink(output);
}

TEST(the_program_is_one_process)
{
    static const char *const launched[][2] = {
        {"OMPI_COMM_WORLD_SIZE", ""}, {"PMI_SIZE", ""}, {"SLURM_STEP_NUM_TASKS", ""}, {"WORLD_SIZE", "RANK"}};
    const char *flags[] = {"--tokenizer", "bytes", "--text", "a"};
    GxError err = GX_ZERO;
    if (gx_mpi_started() > 1) SKIP("started by a launcher");
    for (int i = 0; i < 4; i++) {
        if (launched[i][1][0]) setenv(launched[i][1], "0", 1);
        setenv(launched[i][0], "2", 1);
        refused(&err, run_flags(flags, 4, &err), GX_ERR_UNSUPPORTED, "one of 2 processes", "without the launcher");
        setenv(launched[i][0], "1", 1);
        CHECK(run_flags(flags, 4, &err) == GX_OK, "%s", err.message);
        unsetenv(launched[i][0]);
        if (launched[i][1][0]) unsetenv(launched[i][1]);
    }
}

// Shows the lines of a pipe into which the text is written again and again.
static GxStatus show_piped(const char *text, int64_t bytes, int64_t repeats, GxError *err)
{
    int ends[2];
    char path[40];
    if (!CHECK(pipe(ends) == 0, "no pipe")) return GX_OK;
    signal(SIGPIPE, SIG_IGN);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]); // so that it ends when nobody reads any more
        for (int64_t i = 0; i < repeats; i++)
            if (write(ends[1], text, (size_t)bytes) != bytes) break;
        _exit(0);
    }
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    const char *flags[] = {"--tokenizer", "bytes", "--file", path};
    const GxStatus status = run_flags(flags, 4, err);
    close(ends[0]);
    waitpid(child, NULL, 0);
    return status;
}

TEST(an_option_of_another_use_of_the_program_is_refused_and_not_left_out)
{
    static const struct {
        const char *flags[8], *words;
    } cases[] = {{{"--tokenizer", "bytes", "--corpus", "x", "--output_file", "y", "--max_length", "5"},
                  "--max_length belongs to --text or --file, but this is --corpus"},
                 {{"--tokenizer", "bytes", "--corpus", "x", "--output_file", "y", "--vocab_size", "500"},
                  "--vocab_size belongs to --train, but this is --corpus; leave one of them out"},
                 {{"--tokenizer", "bytes", "--text", "a", "--output_file", "y"},
                  "--output_file belongs to --corpus, but this is"},
                 {{"--tokenizer", "bytes", "--file", "a", "--threads", "3"}, "--threads belongs to --corpus"},
                 {{"--tokenizer", "bytes", "--text", "a", "--lowercase", "false"}, "--lowercase belongs to --train"},
                 {{"--train", "a", "--output_dir", "b", "--corpus", "c"}, "expected one of --train and --corpus"},
                 {{"--train", "a", "--output_dir", "b", "--text", "c"}, "expected one of --train and --text"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxError err = GX_ZERO;
        int n = 0;
        while (n < 8 && cases[i].flags[n]) n++;
        refused(&err, run_flags(cases[i].flags, n, &err), GX_ERR_ARGUMENT, "", cases[i].words);
    }
}

TEST(lines_are_read_from_files_and_pipes_and_not_from_what_has_no_end)
{
    static char zeros[1 << 20];
    char folder[GX_PATH];
    GxError err = GX_ZERO;
    snprintf(folder, sizeof folder, "%s", root);
    const char *flags[] = {"--tokenizer", "bytes", "--file", "/dev/zero"};
    refused(&err, run_flags(flags, 4, &err), GX_ERR_IO, "/dev/zero", "is a device; expected a text file");
    flags[3] = folder;
    refused(&err, run_flags(flags, 4, &err), GX_ERR_IO, root, "is a folder; expected a text file");
    flags[3] = "nowhere";
    refused(&err, run_flags(flags, 4, &err), GX_ERR_IO, "nowhere", "No such file");
    CHECK(show_piped("some\nlines", 10, 1, &err) == GX_OK, "a pipe: %s", err.message);
    refused(&err, show_piped(zeros, sizeof zeros, 100, &err), GX_ERR_FORMAT, "line 1", "has more than 67108864 bytes");
}

TEST(the_program_trains_a_bpe_and_refuses_options_of_wordpiece_where_they_were_given)
{
    static const char text[] = "Some words, some more words, and some words again\n";
    static const char config[] = "{\"type\": \"bpe\", \"clean_text\": true}";
    static const char *const other[][2] = {{"--limit_alphabet", "1000"}, {"--lowercase", "true"},
                                           {"--strip_accents", "auto"},  {"--clean_text", "true"},
                                           {"--lowercase", "false"},     {"--handle_chinese_chars", "true"}};
    GxError err = GX_ZERO;
    GxTokenizer t;
    char words[GX_PATH], folder[GX_PATH], file[GX_PATH];
    if (!gx_regex_is_built()) SKIP("built without PCRE2");
    snprintf(words, sizeof words, "%s", at("words")), snprintf(folder, sizeof folder, "%s", at("bpe"));
    snprintf(file, sizeof file, "%s", at("options.json"));
    put(words, text, (int64_t)strlen(text)), put(file, config, (int64_t)strlen(config));
    const char *flags[] = {"--train", words, "--output_dir", folder, "--vocab_size", "262", "--type", "bpe", "", ""};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        flags[8] = other[i][0], flags[9] = other[i][1];
        refused(&err, run_flags(flags, 10, &err), GX_ERR_ARGUMENT, other[i][0], " is only for WordPiece");
    }
    CHECK(!gx_path_is_folder(folder), "something is left");
    flags[6] = "--config", flags[7] = file;
    refused(&err, run_flags(flags, 8, &err), GX_ERR_ARGUMENT, "--clean_text (in the --config file)", "WordPiece");
    flags[6] = "--type", flags[7] = "bpe";
    CHECK(run_flags(flags, 8, &err) == GX_OK, "%s", err.message);
    if (!CHECK(gx_tokenizer_open(&t, folder, &err) == GX_OK, "%s", err.message)) return;
    CHECK(t.kind == &gx_bpe && t.vocab_size == 262 && gx_tokenizer_find(&t, "wor") > 0, "%s", t.identity);
    gx_tokenizer_close(&t);
    gx_folder_remove(folder, &err);
    CHECK(run_flags(flags, 4, &err) == GX_OK && gx_tokenizer_open(&t, folder, &err) == GX_OK, "%s", err.message);
    CHECK(t.kind == &gx_wordpiece, "without --type it is %s", t.kind->name);
    gx_tokenizer_close(&t);
    flags[7] = "unigram";
    refused(&err, run_flags(flags, 8, &err), GX_ERR_ARGUMENT, "type", "unigram");
}

int main(int argc, char **argv) { return test_in_folder(argc, argv, "test_tokenizer"); }
