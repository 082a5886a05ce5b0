// test_masked_lm.cu: BERT's pre-training as a task: which tokens are masked and by what, which sentences a sample has,
// what is held out, and what is said of a text that does not fit.
#include "galaxy.h"
#include "test/said.h"
#include <sys/stat.h>

// ---- words of these tests ------------------------------------------------------------------------------------------

static char folder[] = "/tmp/galaxy_test_masked_lm_XXXXXX"; // made in main, removed there

static const char *path_of(const char *name) // good for the next 4 calls
{
    static char paths[4][GX_PATH];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, GX_PATH, "%s/%s", folder, name);
    return path;
}

static void put_bytes(const char *name, const char *text, size_t n)
{
    GxError err = GX_ZERO;
    CHECK(gx_file_write(path_of(name), text, (int64_t)n, &err) == GX_OK, "%s", err.message);
}
static void put(const char *name, const char *text) { put_bytes(name, text, strlen(text)); }

// vocab.txt: special tokens; the letters as words and as pieces that go on; numbers as words "0" to "999".
enum {
    PAD,
    UNK,
    CLS,
    SEP,
    MASK,
    LETTER,
    PIECE = LETTER + 26,
    NUMBER = PIECE + 26,
    NUMBERS = 1000,
    VOCAB = NUMBER + NUMBERS
};
static void put_vocabulary(const char *name, const char *special)
{
    char *text = (char *)calloc(1, 20000), room[32];
    strcat(text, special);
    for (int i = 0; i < 26; i++) snprintf(room, sizeof room, "%c\n", 'a' + i), strcat(text, room);
    for (int i = 0; i < 26; i++) snprintf(room, sizeof room, "##%c\n", 'a' + i), strcat(text, room);
    for (int i = 0; i < NUMBERS; i++) snprintf(room, sizeof room, "%d\n", i), strcat(text, room);
    mkdir(path_of(name), 0700);
    char file[64];
    snprintf(file, sizeof file, "%s/vocab.txt", name);
    put(file, text);
    free(text);
}

static struct {
    char text[2000];
    int n;
} logged;
static void hear(void *user, GxLogLevel level, const char *text)
{
    (void)user, (void)level;
    snprintf(logged.text, sizeof logged.text, "%s", text);
    logged.n++;
}

typedef struct { // a task that is open
    GxContext g;
    GxMaskedLm c;
    GxTaskSetup setup;
} Opened;

static GxStatus try_open(Opened *o, const char *text, int64_t T, const GxMaskedLm *options)
{
    memset(o, 0, sizeof *o);
    memset(&logged, 0, sizeof logged);
    o->g.device = gx_device_cpu(), o->g.world = 1, o->g.threads = 2, o->g.log.write = hear;
    o->c = *options;
    snprintf(o->c.train_data, GX_PATH, "%s", path_of(text));
    if (!o->c.tokenizer_folder[0]) snprintf(o->c.tokenizer_folder, GX_PATH, "%s", path_of("words"));
    o->setup.seq_len = T, o->setup.model = "";
    return gx_masked_lm.data.open(&o->g, &o->c, &o->setup);
}

static int opened(Opened *o, const char *text, int64_t T, const GxMaskedLm *options)
{
    return CHECK(try_open(o, text, T, options) == GX_OK, "%s: %s", text, o->g.error.message);
}

static void refused(const char *text, int64_t T, const GxMaskedLm *options, const char *part)
{
    Opened o;
    CHECK(try_open(&o, text, T, options) != GX_OK && strstr(o.g.error.message, part), "\"%s\" is not in: %s", part,
          o.g.error.message);
    gx_masked_lm.data.close(&o.c);
}

static GxMaskedLm options_of(double probability, double held_out, int nsp, int packing)
{
    GxMaskedLm c = GX_ZERO;
    c.mlm_probability = probability, c.validation_fraction = held_out, c.nsp = nsp, c.packing = packing;
    c.short_seq_probability = 0.1;
    return c;
}

// A batch and its block; laid for B samples.
typedef struct {
    GxBatch b;
    char *block;
} Batch;

static void lay(Batch *b, const Opened *o, int64_t B)
{
    memset(b, 0, sizeof *b);
    b->b.T = o->c.seq_len, b->b.B = B;
    b->block = (char *)malloc((size_t)gx_masked_lm.batch.layout(&o->c, &b->b, NULL, NULL));
    gx_masked_lm.batch.layout(&o->c, &b->b, b->block, b->block);
}

static void fill(Batch *b, Opened *o, int64_t first, uint64_t seed)
{
    b->b.sample = first;
    CHECK(gx_masked_lm.batch.fill(&o->g, &o->c, &b->b, b->block, seed, &o->g.error) == GX_OK, "%s", o->g.error.message);
}

static void fill_held_out(Batch *b, Opened *o, int64_t first, int64_t samples)
{
    b->b.sample = first;
    CHECK(gx_masked_lm.batch.fill_held_out(&o->g, &o->c, &b->b, b->block, samples, &o->g.error) == GX_OK, "%s",
          o->g.error.message);
}

// The column's tokens before they were masked, up to padding. Returns how many.
static int64_t unmasked(const Batch *b, int64_t column, int32_t *tokens)
{
    const int64_t T = b->b.T, B = b->b.B;
    int64_t n = 0;
    for (; n < T && b->b.documents[2 * (n * B + column) + 1]; n++) tokens[n] = b->b.tokens[n * B + column];
    for (int64_t i = 0; i < b->b.target[0].n; i++)
        if (b->b.target[0].rows[i] % B == column) tokens[b->b.target[0].rows[i] / B] = b->b.target[0].labels[i];
    return n;
}

static void is(const char *what, const int32_t *found, const int32_t *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!CHECK(found[i] == expected[i], "%s[%ld] is %d, expected %d", what, (long)i, found[i], expected[i])) return;
}

// Of n draws with probability p, each for `together` at once: 5 standard deviations.
static void is_rate(const char *what, int64_t found, int64_t n, double p, double together)
{
    const double deviation = sqrt((double)n * p * (1 - p) * together);
    CHECK(fabs((double)found - p * (double)n) <= 5 * deviation, "%s: %ld of %ld, expected %.0f +- %.0f", what,
          (long)found, (long)n, p * (double)n, 5 * deviation);
}

// ---- masks ---------------------------------------------------------------------------------------------------------

enum { LENGTH = 102, SAMPLES = 4000 };
// [CLS] abc abc … [UNK] … [SEP]: words of three pieces; in the middle two special tokens.
static void draw_text(int32_t tokens[LENGTH])
{
    for (int i = 0; i < LENGTH; i++) tokens[i] = i % 3 == 1 ? LETTER + i % 26 : PIECE + i % 26;
    tokens[0] = CLS, tokens[LENGTH - 1] = SEP;
    tokens[50] = UNK, tokens[51] = SEP; // "[UNK] [SEP] ##z": a piece without a beginning is a word
}

static GxMasking masking_of(const GxTokenizer *t, double p, int whole_words, uint64_t seed)
{
    GxMasking m = {p, whole_words, t, seed, gx_random_site(GX_SITE_MASK, 0)};
    return m;
}

static void check_masks(int whole_words)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    int32_t text[LENGTH], tokens[LENGTH], labels[LENGTH];
    int64_t all = 0, masked = 0, kept = 0, random = 0, of_position[LENGTH] = {0}, wrong_count = 0, pairs = 0, both = 0;
    static int64_t of_id[VOCAB];
    memset(of_id, 0, sizeof of_id);
    if (!CHECK(gx_tokenizer_open(&t, path_of("words"), &err) == GX_OK, "%s", err.message)) return;
    const GxMasking m = masking_of(&t, 0.15, whole_words, 77);
    draw_text(text);
    for (int64_t s = 0; s < SAMPLES; s++) {
        memcpy(tokens, text, sizeof text);
        const int64_t n = gx_mask_tokens(&m, s, 0, tokens, labels, LENGTH, LENGTH);
        int64_t count = 0;
        for (int i = 0; i < LENGTH; i++) {
            const int is_special = text[i] < LETTER;
            if (labels[i] == GX_IGNORE_INDEX) {
                CHECK(tokens[i] == text[i], "a token that does not count is another one");
                continue;
            }
            count++, of_position[i]++;
            CHECK(!is_special && labels[i] == text[i], "position %d has the label %d", i, labels[i]);
            if (tokens[i] == MASK) masked++;
            else if (tokens[i] == text[i]) kept++;
            else random++, of_id[tokens[i]]++;
        }
        wrong_count += count != n;
        all += count;
        for (int i = 1; whole_words && i < LENGTH - 1; i++) // a piece goes with what it goes on from
            if (text[i] >= PIECE && text[i - 1] >= LETTER) {
                pairs += text[i - 1] < PIECE && labels[i] != GX_IGNORE_INDEX;
                both += text[i - 1] < PIECE && tokens[i] == MASK && tokens[i - 1] == MASK;
                CHECK((labels[i] == GX_IGNORE_INDEX) == (labels[i - 1] == GX_IGNORE_INDEX), "half a word, at %d", i);
            }
    }
    CHECK(wrong_count == 0, "how many count");
    is_rate("tokens that count", all, SAMPLES * (LENGTH - 4), 0.15, whole_words ? 3 : 1);
    is_rate("[MASK]", masked, all, 0.8 + 0.1 / VOCAB, 1);
    if (whole_words) is_rate("two pieces of a word, each for itself [MASK]", both, pairs, 0.64, 1);
    is_rate("as they were", kept, all, 0.1 + 0.1 / VOCAB, 1);
    is_rate("others", random, all, 0.1 * (VOCAB - 2) / VOCAB, 1);
    for (int i = 0; i < LENGTH; i++)
        if (text[i] >= LETTER) is_rate("a position", of_position[i], SAMPLES, 0.15, 1);
    int64_t below = 0, special = 0; // the whole vocabulary: special tokens, too
    for (int i = 0; i < VOCAB; i++) below += i < VOCAB / 2 ? of_id[i] : 0, special += i < MASK ? of_id[i] : 0;
    is_rate("random ids in the first half", below, random, (VOCAB / 2 - 1.0) / (VOCAB - 2), 1);
    CHECK(special > 0, "no random id is that of a special token");
    gx_tokenizer_close(&t);
}

TEST(fifteen_percent_count_of_these_80_are_masked_10_random_10_kept) { check_masks(0); }
TEST(whole_words_count_or_do_not_and_their_pieces_have_the_same_rates) { check_masks(1); }

TEST(no_more_tokens_count_than_there_is_room_for_and_no_half_words)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    int32_t text[LENGTH], tokens[LENGTH], labels[LENGTH];
    if (!CHECK(gx_tokenizer_open(&t, path_of("words"), &err) == GX_OK, "%s", err.message)) return;
    draw_text(text);
    for (int whole = 0; whole < 2; whole++) {
        const GxMasking m = masking_of(&t, 1, whole, 1);
        for (int most = 0; most < 12; most++) {
            memcpy(tokens, text, sizeof text);
            const int64_t n = gx_mask_tokens(&m, 0, 0, tokens, labels, LENGTH, most);
            CHECK(n == most || (whole && n <= most && n > most - 3), "%ld of at most %d count", (long)n, most);
        }
    }
    CHECK(gx_mask_most(128, 0.15) == 45 && gx_mask_most(8, 0.15) == 8 && gx_mask_most(8, 1) == 8, "%ld, %ld",
          (long)gx_mask_most(128, 0.15), (long)gx_mask_most(8, 0.15));
    gx_tokenizer_close(&t);
}

TEST(masks_are_those_of_seed_sample_and_position)
{
    GxTokenizer t;
    GxError err = GX_ZERO;
    int32_t text[LENGTH], first[LENGTH], other[LENGTH], labels[LENGTH];
    if (!CHECK(gx_tokenizer_open(&t, path_of("words"), &err) == GX_OK, "%s", err.message)) return;
    const GxMasking m = masking_of(&t, 0.5, 0, 3), n = masking_of(&t, 0.5, 0, 4);
    const struct {
        const GxMasking *m;
        int64_t sample, at;
        int same;
    } cases[] = {{&m, 5, 0, 1}, {&m, 6, 0, 0}, {&n, 5, 0, 0}, {&m, 5, 1, 0}};
    draw_text(text);
    memcpy(first, text, sizeof text);
    gx_mask_tokens(&m, 5, 0, first, labels, LENGTH, LENGTH);
    for (int i = 0; i < 4; i++) {
        memcpy(other, text, sizeof text);
        gx_mask_tokens(cases[i].m, cases[i].sample, cases[i].at, other, labels, LENGTH, LENGTH);
        CHECK((memcmp(first, other, sizeof first) == 0) == cases[i].same, "case %d", i);
    }
    gx_tokenizer_close(&t);
}

// ---- batches by hand -----------------------------------------------------------------------------------------------

TEST(samples_are_sentences_in_a_row_of_one_document)
{
    enum { T = 6 };
    Opened o;
    Batch b;
    // three documents; what fits into 4 tokens: "1 2 3 4" | "5 6 7" "8 9" -> alone, since 8 9 would be 5 tokens | "ab"
    put("hand.txt", "\n\n1 2\n3 4\r\n \t\n5 6 7\n8 9\n\n\nab\n");
    const GxMaskedLm options = options_of(1e-12, 0, 0, 0);
    if (!opened(&o, "hand.txt", T, &options)) return;
    CHECK(o.setup.vocab == VOCAB && o.c.head.kind == GX_HEAD_MASKED && !o.c.head.with_pairs,
          "what it wants of a model");
    CHECK(o.c.file.sentences.sentences == 5 && o.c.file.sentences.documents == 3 && o.c.train.list.n == 4 &&
              gx_masked_lm.batch.held_out(&o.c) == 0,
          "%ld sentences, %ld documents, %ld samples", (long)o.c.file.sentences.sentences,
          (long)o.c.file.sentences.documents, (long)o.c.train.list.n);
    static const int32_t expected[4][T] = {{CLS, NUMBER + 1, NUMBER + 2, NUMBER + 3, NUMBER + 4, SEP},
                                           {CLS, NUMBER + 5, NUMBER + 6, NUMBER + 7, SEP, PAD},
                                           {CLS, NUMBER + 8, NUMBER + 9, SEP, PAD, PAD},
                                           {CLS, LETTER, PIECE + 1, SEP, PAD, PAD}};
    static const int64_t length[] = {6, 5, 4, 4};
    int seen[4] = {0};
    lay(&b, &o, 4);
    fill(&b, &o, 0, 1);
    for (int64_t i = 0; i < 4; i++) {
        int32_t column[T], k = 0;
        for (int t = 0; t < T; t++) column[t] = b.b.tokens[t * 4 + i];
        while (k < 4 && memcmp(column, expected[k], sizeof column)) k++;
        if (!CHECK(k < 4, "column %ld is none of the four", (long)i)) continue;
        seen[k]++;
        for (int t = 0; t < T; t++) {
            const int row = t * 4 + (int)i, is_text = t < length[k];
            CHECK(b.b.types[row] == 0 && b.b.positions[row] == (is_text ? t : 0) && b.b.documents[2 * row] == 0 &&
                      b.b.documents[2 * row + 1] == (is_text ? length[k] : 0),
                  "row %d", row);
        }
    }
    for (int k = 0; k < 4; k++) CHECK(seen[k] == 1, "text %d comes %d times in an epoch", k, seen[k]);
    CHECK(b.b.target[0].n == 0 && b.b.target[0].rows, "which masked tokens become");
    free(b.block);
    gx_masked_lm.data.close(&o.c);
    // everything is masked
    const GxMaskedLm every = options_of(1, 0, 0, 0);
    static const int32_t rows[] = {1, 2}, labels[] = {LETTER, PIECE + 1};
    put("hand.txt", "ab\n");
    if (!opened(&o, "hand.txt", T, &every)) return;
    lay(&b, &o, 1);
    fill(&b, &o, 12, 1);
    CHECK(b.b.target[0].n == 2, "%ld count", (long)b.b.target[0].n);
    is("rows", b.b.target[0].rows, rows, 2);
    is("labels", b.b.target[0].labels, labels, 2);
    int64_t count[GX_MAX_LOSSES] = {1, 1, 1, 1};
    gx_masked_lm.batch.counts(&o.c, &b.b, count);
    CHECK(count[0] == 3 && count[1] == 1, "%ld and %ld", (long)count[0], (long)count[1]);
    free(b.block);
    gx_masked_lm.data.close(&o.c);
}

TEST(packed_samples_hold_several_texts_that_do_not_see_each_other)
{
    enum { T = 10 };
    Opened o;
    Batch b;
    put("hand.txt", "1 2\n\n3\n\n4 5\n");
    const GxMaskedLm options = options_of(1e-12, 0, 0, 1);
    if (!opened(&o, "hand.txt", T, &options)) return;
    lay(&b, &o, 1);
    int64_t texts = 0;
    for (int64_t column = 0; column < 8; column++) { // an epoch has two: 4 + 3, or 4 + 4 tokens, then the rest
        fill(&b, &o, column, 1);
        for (int t = 0; t < T; t++) {
            const int32_t begin = b.b.documents[2 * t], end = b.b.documents[2 * t + 1];
            if (b.b.tokens[t] == CLS) texts++;
            if (end == 0) {
                CHECK(b.b.tokens[t] == PAD, "padding");
                continue;
            }
            CHECK(begin <= t && t < end && b.b.tokens[begin] == CLS && b.b.tokens[end - 1] == SEP &&
                      b.b.positions[t] == t - begin,
                  "column %ld, position %d", (long)column, t);
        }
    }
    CHECK(texts == 12, "%ld texts in four epochs of three", (long)texts);
    // the texts of a column share the room for tokens that count
    o.c.mlm_probability = 1, o.c.layout.target[0].most = 3;
    for (int64_t column = 0; column < 8; column++) {
        int words = 0;
        fill(&b, &o, column, 1);
        for (int t = 0; t < T; t++)
            words += b.b.documents[2 * t + 1] > 0 && b.b.tokens[t] != CLS && b.b.tokens[t] != SEP;
        CHECK(b.b.target[0].n == (words < 3 ? words : 3), "%ld of %d count", (long)b.b.target[0].n, words);
    }
    free(b.block);
    gx_masked_lm.data.close(&o.c);
}

// ---- pairs ---------------------------------------------------------------------------------------------------------

// Documents of 1 to 9 sentences, each of which is its own number, 1 to 3 times: which sentence a token is of can be
// seen. document_of[number].
static int document_of[NUMBERS + 1], sentences;
static void put_documents(const char *name, int documents)
{
    char *text = (char *)calloc(1, 40000), room[64];
    sentences = 0;
    for (int d = 0; d < documents; d++) {
        const int n = 1 + (d * 7) % 9;
        for (int i = 0; i < n && sentences < NUMBERS; i++, sentences++) {
            static const char *const formats[] = {"%d\n", "%d %d\n", "%d %d %d\n"};
            snprintf(room, sizeof room, formats[sentences % 3], sentences, sentences, sentences);
            strcat(text, room);
            document_of[sentences] = d;
        }
        strcat(text, "\n");
    }
    document_of[sentences] = -1;
    put(name, text);
    free(text);
}

// The sentences of tokens[n]: the first, how many; checks that they are in a row and whole (but at the ends, if cut).
static int in_a_row(const int32_t *tokens, int64_t n, int is_cut, int *first)
{
    int count = 0;
    *first = tokens[0] - NUMBER;
    for (int64_t i = 0; i < n;) {
        const int sentence = tokens[i] - NUMBER;
        int64_t same = 0;
        while (i + same < n && tokens[i + same] == tokens[i]) same++;
        CHECK(sentence == *first + count && document_of[sentence] == document_of[*first], "sentence %d behind %d",
              sentence, *first + count - 1);
        CHECK(is_cut || same == sentence % 3 + 1, "sentence %d has lost a token", sentence);
        count++, i += same;
    }
    return count;
}

TEST(pairs_are_a_and_what_follows_it_or_is_from_another_document)
{
    enum { EPOCHS = 40 };
    static const int lengths[] = {12, 24, 64};
    put_documents("pairs.txt", 60);
    for (int l = 0; l < 3; l++) {
        const int T = lengths[l];
        Opened o;
        Batch b;
        GxMaskedLm options = options_of(0.15, 0, 1, 0);
        options.short_seq_probability = 0;
        if (!opened(&o, "pairs.txt", T, &options)) return;
        CHECK(o.c.head.with_pairs, "it wants a head for pairs");
        lay(&b, &o, 1);
        int64_t choices = 0, followed = 0, cuts = 0, number = 0;
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            int used[NUMBERS] = {0};
            int64_t in_epoch = 0;
            do {
                int32_t tokens[64];
                int64_t n, a = 1, to;
                int first, second;
                fill(&b, &o, number++, 5);
                n = unmasked(&b, 0, tokens);
                for (to = 1; tokens[to] != SEP;) to++;
                CHECK(tokens[0] == CLS && tokens[n - 1] == SEP && b.b.target[1].n == 1 && b.b.target[1].rows[0] == 0,
                      "frame");
                for (int64_t i = 0; i < n; i++) CHECK(b.b.types[i] == (i > to), "type of token %ld", (long)i);
                const int full = n == T, label = b.b.target[1].labels[0];
                const int64_t n_a = to - a, n_b = n - 2 - to;
                if (!CHECK(n_a > 0 && n_b > 0, "an empty part")) continue;
                const int of_a = in_a_row(tokens + a, n_a, full, &first),
                          of_b = in_a_row(tokens + to + 1, n_b, full, &second);
                cuts += full;
                if (label == 0) {
                    CHECK(document_of[second] == document_of[first] &&
                              (full ? second >= first + of_a : second == first + of_a),
                          "B (%d) does not follow A (%d, %d of them)", second, first, of_a);
                    followed++;
                } else CHECK(document_of[second] != document_of[first], "B is from A's own document");
                const GxSentenceText *text =
                    &o.c.train.list
                         .text[gx_permute(5, o.c.train.epoch, o.c.train.list.n, number - 1 - o.c.train.first)];
                // where A is the document's last sentence there is no choice
                choices += document_of[text->a + text->a_n] == document_of[text->a];
                if (!full) {
                    CHECK(text->a == first && text->a_n == of_a && text->b == second && text->b_n == of_b, "its list");
                }
                for (int i = 0; i < text->a_n; i++) used[text->a + i]++;
                for (int i = 0; i < text->b_n && label == 0; i++) used[text->b + i]++;
                in_epoch++;
            } while (number < o.c.train.first + o.c.train.list.n);
            for (int i = 0; i < sentences; i++)
                CHECK(used[i] == 1, "T %d, epoch %d: sentence %d is used %d times beside random ones", T, epoch, i,
                      used[i]);
        }
        is_rate("B follows A", followed, choices, 0.5, 1);
        CHECK(l == 2 || cuts > 0, "no pair was cut to %d", T);
        free(b.block);
        gx_masked_lm.data.close(&o.c);
    }
}

TEST(the_longer_of_a_pair_loses_tokens_at_either_end)
{
    enum { PAIRS = 1000, LOST = 6 };
    static const int ways[LOST + 1] = {1, 6, 15, 20, 15, 6, 1}; // to lose so many of 6 in front, of 64
    const GxPairing how = {10, 0, 3, 0};
    int64_t pairs[LOST + 1] = {0}, fronts = 0;
    for (int64_t i = 0; i < PAIRS; i++) {
        int64_t a = 100, a_n = 4, b = 200, b_n = 12;
        gx_sentences_cut_pair(&how, i, &a, &a_n, &b, &b_n);
        CHECK(a == 100 && a_n == 4 && b_n == 6 && b >= 200 && b <= 206, "the longer one alone: %ld, %ld", (long)a_n,
              (long)b_n);
        if (b >= 200 && b <= 206) pairs[b - 200]++, fronts += b - 200;
        a = 100, a_n = 9, b = 200, b_n = 9; // of equal ones B first
        gx_sentences_cut_pair(&how, i, &a, &a_n, &b, &b_n);
        CHECK(a_n == 5 && b_n == 5, "%ld and %ld", (long)a_n, (long)b_n);
        a_n = 6, b_n = 5;
        gx_sentences_cut_pair(&how, i, &a, &a_n, &b, &b_n);
        CHECK(a_n == 5 && b_n == 5, "A, where it is longer: %ld and %ld", (long)a_n, (long)b_n);
        a_n = 5, b_n = 6;
        gx_sentences_cut_pair(&how, i, &a, &a_n, &b, &b_n);
        CHECK(a_n == 5 && b_n == 5, "B, where it is longer: %ld and %ld", (long)a_n, (long)b_n);
        a_n = 5, b_n = 5;
        gx_sentences_cut_pair(&how, i, &a, &a_n, &b, &b_n);
        CHECK(a_n == 5 && b_n == 5, "what fits is left alone");
    }
    const GxPairing odd = {17, 0, 3, 0};
    int64_t a = 100, a_n = 9, b = 200, b_n = 9;
    gx_sentences_cut_pair(&odd, 0, &a, &a_n, &b, &b_n);
    CHECK(a_n == 9 && b_n == 8, "of equal ones B: %ld and %ld", (long)a_n, (long)b_n);
    is_rate("tokens lost in front", fronts, LOST * PAIRS, 0.5, 1);
    for (int n = 0; n <= LOST; n++) { // each token by a draw of its own
        char what[60];
        snprintf(what, sizeof what, "pairs that lost %d of %d in front", n, LOST);
        is_rate(what, pairs[n], PAIRS, ways[n] / 64.0, 1);
    }
}

TEST(one_pair_in_ten_is_short)
{
    // long documents of one-token sentences: a pair that is not short has all the tokens there is room for
    char *text = (char *)calloc(1, 40000), room[16];
    for (int i = 0; i < NUMBERS; i++)
        snprintf(room, sizeof room, "%d\n%s", i, i % 500 == 499 ? "\n" : ""), strcat(text, room);
    put("long.txt", text);
    free(text);
    Opened o;
    const GxMaskedLm options = options_of(0.15, 0, 1, 0);
    if (!opened(&o, "long.txt", 23, &options)) return;
    int64_t pairs = 0, small = 0, tokens[21] = {0};
    for (uint64_t epoch = 0; epoch < 200; epoch++) {
        GxPairing how = {20, 0.1, 9, epoch};
        CHECK(gx_sentences_pairs(&o.c.file.sentences, 0, 2, &how, &o.c.train.list, &o.g.error) == GX_OK, "pairs");
        for (int64_t i = 0; i < o.c.train.list.n; i++) {
            const GxSentenceText *p = &o.c.train.list.text[i];
            if (p->label || p->a % 500 > 470) continue; // the document may have ended
            pairs++, small += p->a_n + p->b_n < 20, tokens[p->a_n + p->b_n]++;
        }
    }
    // of a tenth 2 to 20 tokens, alike
    is_rate("short pairs", small, pairs, 0.1 * 18 / 19, 1);
    for (int n = 2; n < 20; n++) is_rate("pairs of a length", tokens[n], pairs, 0.1 / 19, 1);
    memset(tokens, 0, sizeof tokens), pairs = 0;
    for (uint64_t epoch = 0; epoch < 20; epoch++) { // all of them are short
        GxPairing how = {20, 1, 9, epoch};
        CHECK(gx_sentences_pairs(&o.c.file.sentences, 0, 2, &how, &o.c.train.list, &o.g.error) == GX_OK, "pairs");
        for (int64_t i = 0; i < o.c.train.list.n; i++) {
            const GxSentenceText *p = &o.c.train.list.text[i];
            if (p->label == 0 && p->a % 500 <= 470) pairs++, tokens[p->a_n + p->b_n]++;
        }
    }
    for (int n = 2; n <= 20; n++) is_rate("short pairs of a length", tokens[n], pairs, 1.0 / 19, 1);
    gx_masked_lm.data.close(&o.c);
}

// ---- which samples a batch has -------------------------------------------------------------------------------------

static uint64_t hash_column(const Batch *b, int64_t column)
{
    const int64_t B = b->b.B;
    uint64_t hash = GX_HASH_START;
    for (int64_t t = 0; t < b->b.T; t++) {
        const int64_t row = t * B + column;
        hash = gx_hash(hash, &b->b.tokens[row], 4), hash = gx_hash(hash, &b->b.types[row], 4);
        hash = gx_hash(hash, &b->b.positions[row], 4), hash = gx_hash(hash, &b->b.documents[2 * row], 8);
    }
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < b->b.target[k].n; i++) {
            if (b->b.target[k].rows[i] % B != column) continue;
            const int32_t t = (int32_t)(b->b.target[k].rows[i] / B);
            hash = gx_hash(hash, &t, 4), hash = gx_hash(hash, &b->b.target[k].labels[i], 4);
        }
    return hash;
}

TEST(samples_do_not_depend_on_ranks_micro_batches_and_resuming)
{
    enum { ALL = 240 };
    static const int64_t sizes[] = {1, 3, 8, 60};
    put_documents("split.txt", 60);
    for (int kind = 0; kind < 3; kind++) {
        Opened o;
        uint64_t expected[ALL];
        const GxMaskedLm options = options_of(0.15, 0.1, kind == 1, kind == 2);
        for (int i = 0; i < 4; i++) {
            Batch b;
            if (!opened(&o, "split.txt", 16, &options)) return;
            lay(&b, &o, sizes[i]);
            const int64_t first = i == 3 ? ALL / 2 : 0; // a run that is resumed
            for (int64_t s = first; s < ALL; s += sizes[i]) {
                fill(&b, &o, s, 11);
                for (int64_t c = 0; c < sizes[i]; c++) {
                    if (i == 0) expected[s] = hash_column(&b, c);
                    else
                        CHECK(hash_column(&b, c) == expected[s + c], "kind %d, sample %ld in batches of %ld", kind,
                              (long)(s + c), (long)sizes[i]);
                }
            }
            int64_t differ = 0;
            for (int64_t s = 0; s < ALL && i == 0; s++)
                fill(&b, &o, s, 12), differ += hash_column(&b, 0) != expected[s];
            CHECK(i > 0 || differ > ALL * 9 / 10, "another seed: %ld others", (long)differ);
            free(b.block);
            gx_masked_lm.data.close(&o.c);
        }
    }
}

TEST(every_pass_over_the_text_has_every_token_in_another_order_with_other_masks)
{
    put_documents("passes.txt", 60);
    for (int packing = 0; packing < 2; packing++) {
        Opened o;
        Batch b;
        const GxMaskedLm options = options_of(0.15, 0, 0, packing);
        static uint8_t masked[3][3 * NUMBERS];
        static int order[3][NUMBERS];
        memset(masked, 0, sizeof masked);
        if (!opened(&o, "passes.txt", 16, &options)) return;
        lay(&b, &o, 1);
        int64_t number = 0;
        for (int epoch = 0; epoch < 3; epoch++) {
            int tokens[NUMBERS] = {0}, n = 0;
            for (int64_t seen = 0; seen < o.c.file.sentences.tokens; number++) {
                int32_t text[16];
                fill(&b, &o, number, 4);
                const int64_t have = unmasked(&b, 0, text);
                for (int64_t i = 0; i < have; i++) {
                    if (text[i] < NUMBER) continue;
                    if (tokens[text[i] - NUMBER] == 0) order[epoch][n++] = text[i] - NUMBER;
                    for (int64_t k = 0; k < b.b.target[0].n; k++)
                        if (b.b.target[0].rows[k] == i)
                            masked[epoch][3 * (text[i] - NUMBER) + tokens[text[i] - NUMBER]] = 1;
                    tokens[text[i] - NUMBER]++, seen++;
                }
            }
            for (int i = 0; i < sentences; i++)
                CHECK(tokens[i] == i % 3 + 1, "epoch %d: sentence %d has %d tokens", epoch, i, tokens[i]);
        }
        for (int e = 1; e < 3; e++) { // two of n tokens are masked alike by chance alone
            int64_t both = 0, moved = 0;
            for (int i = 0; i < 3 * NUMBERS; i++) both += masked[e][i] && masked[e - 1][i];
            for (int i = 0; i < sentences; i++) moved += order[e][i] != order[e - 1][i];
            is_rate("masked twice", both, o.c.file.sentences.tokens, 0.15 * 0.15, 1);
            CHECK(moved > sentences / 2, "%ld of %d are elsewhere", (long)moved, sentences);
        }
        free(b.block);
        gx_masked_lm.data.close(&o.c);
    }
}

TEST(whole_documents_at_the_end_are_held_out_and_never_trained_on)
{
    put_documents("held.txt", 60);
    for (int kind = 0; kind < 3; kind++) {
        Opened o;
        Batch b;
        int32_t text[16];
        const int nsp = kind == 1;
        const GxMaskedLm options = options_of(0.15, 0.2, nsp, kind == 2);
        if (!opened(&o, "held.txt", 16, &options)) return;
        const GxSentences *s = &o.c.file.sentences;
        const int first = (int)s->document[s->train_documents];
        const int64_t samples = gx_masked_lm.batch.held_out(&o.c), held = s->tokens - s->begin[first];
        CHECK(document_of[first] != document_of[first - 1], "a document is cut");
        CHECK((double)held >= 0.2 * (double)s->tokens &&
                  (double)(s->tokens - s->begin[s->document[s->train_documents + 1]]) < 0.2 * (double)s->tokens,
              "%ld of %ld tokens are held out", (long)held, (long)s->tokens);
        CHECK(o.c.file.train_tokens == s->tokens - held, "tokens of the training part");
        lay(&b, &o, 3);
        for (int64_t i = 0; i < 600; i += 3) {
            fill(&b, &o, i, 2);
            for (int c = 0; c < 3; c++)
                for (int64_t n = unmasked(&b, c, text), t = 0; t < n; t++)
                    CHECK(text[t] < NUMBER + first, "it trains on sentence %d of %d", text[t] - NUMBER, first);
        }
        uint64_t sums[2] = {GX_HASH_START, GX_HASH_START};
        int64_t seen = 0, count[GX_MAX_LOSSES] = {0}, masked = 0;
        for (int again = 0; again < 2; again++)
            for (int64_t i = 0; i < samples; i += 3) {
                fill_held_out(&b, &o, i, samples);
                for (int c = 0; c < 3; c++) {
                    const uint64_t hash = hash_column(&b, c);
                    sums[again] = gx_hash(sums[again], &hash, 8);
                    const int64_t n = unmasked(&b, c, text);
                    CHECK((n > 0) == (i + c < samples), "sample %ld of %ld", (long)(i + c), (long)samples);
                    for (int64_t t = 0; t < n && again == 0; t++) {
                        CHECK(text[t] < NUMBER || text[t] >= NUMBER + first, "it validates on sentence %d",
                              text[t] - NUMBER);
                        seen += text[t] >= NUMBER;
                    }
                }
                if (again) continue;
                gx_masked_lm.batch.counts(&o.c, &b.b, count);
                masked += b.b.target[0].n;
            }
        CHECK(sums[0] == sums[1], "another validation is another one");
        CHECK(nsp || seen == held, "%ld of %ld held-out tokens are validated on", (long)seen, (long)held);
        CHECK(count[0] == masked && count[1] == (nsp ? samples : 0), "counts: %ld, %ld", (long)count[0],
              (long)count[1]);
        fill_held_out(&b, &o, 0, 2); // a part of them
        CHECK(unmasked(&b, 1, text) > 0 && unmasked(&b, 2, text) == 0, "samples beyond the last are padding");
        free(b.block);
        gx_masked_lm.data.close(&o.c);
    }
}

// ---- metrics -------------------------------------------------------------------------------------------------------

TEST(the_baseline_is_the_loss_of_frequencies)
{
    Opened o;
    GxMetric metric;
    GxError err = GX_ZERO;
    put("base.txt", "a b\na\n\na b\n"); // trained on: a twice, b once
    const GxMaskedLm options = options_of(0.15, 0.3, 0, 0);
    if (!opened(&o, "base.txt", 8, &options)) return;
    CHECK(gx_masked_lm.metrics.baseline(&o.c, &metric, &err) == GX_OK && !strcmp(metric.name, "unigram_loss"), "%s",
          err.message);
    const double expected = -(log(3.0 / (3 + VOCAB)) + log(2.0 / (3 + VOCAB))) / 2;
    CHECK(fabs(metric.value - expected) < 1e-12, "%g, expected %g", metric.value, expected);
    gx_masked_lm.data.close(&o.c);
    const GxMaskedLm none = options_of(0.15, 0, 0, 0);
    if (!opened(&o, "base.txt", 8, &none)) return;
    CHECK(gx_masked_lm.metrics.baseline(&o.c, &metric, &err) == GX_OK && metric.name == NULL,
          "without validation: none");
    gx_masked_lm.data.close(&o.c);
}

TEST(metrics_are_losses_perplexity_and_pairs_that_are_right)
{
    GxMaskedLm c = GX_ZERO;
    GxContext g = GX_ZERO;
    GxLosses losses = GX_ZERO;
    GxMetric m[GX_MAX_METRICS];
    float results[3][2] = {{2, 1}, {0, 1}, {5, 6}};
    const int32_t labels[3] = {0, 1, 0}, rows[3] = {0, 1, 2};
    GxBatch b = GX_ZERO;
    g.device = gx_device_cpu(), g.world = 1;
    losses.sum[0] = 30, losses.count[0] = 20, losses.sum[1] = 3, losses.count[1] = 4;
    c.right = 5;
    CHECK(gx_masked_lm.metrics.compute(&g, &c, &losses, m) == 3 && !strcmp(m[0].name, "loss") &&
              m[1].value == exp(1.5) && !strcmp(m[2].name, "accuracy") && m[2].value == 0.25 && m[2].better == 1,
          "without pairs");
    losses.sum[1] = 3;
    c.nsp = 1;
    b.target[1].rows = rows, b.target[1].labels = labels, b.target[1].n = 3;
    b.target[1].logits = gx_rows(results, GX_F32, 3, 2);
    c.pairs = b.target[1].logits, c.pairs_host = results;
    for (int again = 0; again < 2; again++) {
        gx_masked_lm.batch.see(&g, &c, NULL);
        gx_masked_lm.batch.see(&g, &c, &b);
        gx_masked_lm.batch.see(&g, &c, &b);
        CHECK(gx_masked_lm.metrics.compute(&g, &c, &losses, m) == 6, "with pairs");
        CHECK(m[0].value == 2.25 && m[1].value == 1.5 && m[2].value == exp(1.5) && m[3].value == 0 &&
                  m[4].value == 0.75,
              "losses");
        CHECK(!strcmp(m[5].name, "nsp_accuracy") && fabs(m[5].value - 2.0 / 3) < 1e-12 && m[5].better == 1, "%g",
              m[5].value);
    }
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(what_does_not_fit_is_refused_with_what_to_do)
{
    GxMaskedLm options = options_of(0.15, 0.05, 0, 0), pairs = options_of(0.15, 0.05, 1, 0);
    put("good.txt", "a\n\nb\n\nc\n\nd\n");
    put("empty.txt", "\n \n\t\n");
    put("one.txt", "a\nb\nc\n");
    put("two.txt", "a\nb\n\nc\n");
    put("drops.txt", "\xEF\xBF\xBD\n"); // U+FFFD, which the tokenizer drops
    refused("nowhere.txt", 8, &options, "make data-bert");
    refused("empty.txt", 8, &options, "has no sentence");
    refused("drops.txt", 8, &options, "has no sentence");
    refused("one.txt", 8, &options, "has 1 document, so nothing is left to train on");
    put_bytes("nul.txt", "a b\nc\0d\n", 8);
    put("latin.txt", "a\nb \xE4 c\n\nd\n");
    put("torn.txt", "a\nb \xC3");
    refused("nul.txt", 8, &options, "nul.txt:2: a byte of value 0; expected text in UTF-8");
    refused("latin.txt", 8, &options, "latin.txt:2: the byte 0xE4 at 4 is not UTF-8");
    refused("torn.txt", 8, &options, "torn.txt:2: the byte 0xC3 at 4 is not UTF-8");
    refused("good.txt", 3, &options,
            "--seq_len is 3; [CLS] and [SEP] with two tokens of text between them need at least 4; use");
    refused("good.txt", 4, &pairs, "each with [SEP] after it, need at least 5");
    refused("one.txt", 8, &pairs, "one.txt is one document, but --nsp needs several");
    refused(
        "two.txt", 8, &pairs,
        "two.txt has 2 documents, of which --validation_fraction 0.05 holds out 1; --nsp needs at least two in each");
    options.mlm_probability = 0;
    refused("good.txt", 8, &options, "mlm_probability is 0");
    options.mlm_probability = 0.15;
    put_vocabulary("unmasked", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n");
    snprintf(options.tokenizer_folder, GX_PATH, "%s", path_of("unmasked"));
    refused("good.txt", 8, &options, "has no token [MASK]");
    put_vocabulary("unframed", "[PAD]\n[UNK]\n[MASK]\n");
    snprintf(options.tokenizer_folder, GX_PATH, "%s", path_of("unframed"));
    refused("good.txt", 8, &options, "has no token [CLS]");
    snprintf(options.tokenizer_folder, GX_PATH, "%s", path_of("nothing"));
    refused("good.txt", 8, &options, "nothing");
}

TEST(the_tokenizer_is_the_models_where_no_other_is_named)
{
    Opened o;
    GxMaskedLm options = options_of(0.15, 0, 0, 0);
    GxContext g = GX_ZERO;
    GxTokenizer t;
    GxTaskSetup setup = GX_ZERO;
    setup.seq_len = 8, setup.is_dry = 1, setup.model = "";
    g.device = gx_device_cpu(), g.world = 1;
    CHECK(gx_text_open_tokenizer(&g, &t, "", &setup) == GX_ERR_ARGUMENT &&
              strstr(g.error.message, "./tokenize --train"),
          "%s", g.error.message);
    gx_error_clear(&g.error);
    setup.model = path_of("words");
    CHECK(gx_text_open_tokenizer(&g, &t, "", &setup) == GX_OK && setup.vocab == VOCAB && t.vocab_size == VOCAB, "%s",
          g.error.message);
    gx_tokenizer_close(&t);
    setup.model = folder;
    CHECK(gx_text_open_tokenizer(&g, &t, "", &setup) == GX_ERR_ARGUMENT &&
              strstr(g.error.message, "has neither tokenizer.json"),
          "%s", g.error.message);
    gx_error_clear(&g.error);
    put_vocabulary("others", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nnew\n");
    setup.model = path_of("others"), setup.vocab = 5000;
    CHECK(gx_text_open_tokenizer(&g, &t, path_of("words"), &setup) == GX_ERR_ARGUMENT &&
              strstr(g.error.message, "has another tokenizer"),
          "%s", g.error.message);
    gx_error_clear(&g.error);
    setup.model = "", setup.vocab = VOCAB - 1;
    CHECK(gx_text_open_tokenizer(&g, &t, path_of("words"), &setup) == GX_ERR_ARGUMENT &&
              strstr(g.error.message, "vocab_size is 1056, but the tokenizer (wordpiece-1057-"),
          "%s", g.error.message);
    // a dry run reads no text
    memset(&o, 0, sizeof o);
    o.g = g;
    gx_error_clear(&o.g.error);
    o.c = options;
    snprintf(o.c.tokenizer_folder, GX_PATH, "%s", path_of("words"));
    snprintf(o.c.train_data, GX_PATH, "%s", path_of("nowhere.txt"));
    o.setup.seq_len = 128, o.setup.is_dry = 1, o.setup.model = "";
    CHECK(gx_masked_lm.data.open(&o.g, &o.c, &o.setup) == GX_OK && o.setup.vocab == VOCAB, "%s", o.g.error.message);
    Batch b;
    lay(&b, &o, 2);
    CHECK(b.b.target[0].n == 2 * gx_mask_most(128, 0.15), "rows that are planned: %ld", (long)b.b.target[0].n);
    free(b.block);
    gx_masked_lm.data.close(&o.c);
}

TEST(sentences_that_are_too_long_lose_their_ends_and_that_is_said_once)
{
    Opened o;
    put("wide.txt", "1 2\n1 2 3 4 5\n\n6 7 8 9\n");
    const GxMaskedLm options = options_of(1e-12, 0, 0, 0);
    if (!opened(&o, "wide.txt", 5, &options)) return;
    CHECK(logged.n == 1 && strstr(logged.text, "2 of 3 sentences have more than the 3 tokens") &&
              strstr(logged.text, "the first in line 2"),
          "%d messages: %s", logged.n, logged.text);
    CHECK(o.c.file.sentences.tokens == 8 && o.c.file.sentences.token[4] == NUMBER + 3, "%ld tokens",
          (long)o.c.file.sentences.tokens);
    gx_masked_lm.data.close(&o.c);
}

TEST(a_text_of_words_that_the_tokenizer_does_not_know_is_said)
{
    Opened o;
    const GxMaskedLm options = options_of(0.15, 0, 0, 0);
    put("half.txt", "a \xE2\x82\xAC b \xE2\x82\xAC\n");
    put("most.txt", "\xE2\x82\xAC ab \xE2\x82\xAC\n"); // a ##b is one word
    if (!opened(&o, "half.txt", 8, &options)) return;
    CHECK(logged.n == 0, "%s", logged.text);
    gx_masked_lm.data.close(&o.c);
    if (!opened(&o, "most.txt", 8, &options)) return;
    CHECK(logged.n == 1 &&
              strstr(logged.text, "most.txt: 67% of its words are [UNK], because the tokenizer (wordpiece-1057-"),
          "%s", logged.text);
    gx_masked_lm.data.close(&o.c);
}

TEST(names_of_special_tokens_in_a_text_are_tokens_or_letters)
{
    static const char *const splits[] = {"auto", "false", "true"};
    Opened o;
    put("names.txt", "a [MASK] b [SEP]\n");
    for (int k = 0; k < 3; k++) {
        GxMaskedLm options = options_of(1e-12, 0, 0, 0);
        strcpy(options.split_special_tokens, splits[k]);
        if (!opened(&o, "names.txt", 40, &options)) return;
        int64_t special = 0;
        for (int64_t i = 0; i < o.c.file.sentences.tokens; i++)
            special += o.c.file.sentences.token[i] == MASK || o.c.file.sentences.token[i] == SEP;
        CHECK(special == (k < 2 ? 2 : 0) && (k == 2 || o.c.file.sentences.tokens == 4),
              "%s: %ld of %ld tokens are special", splits[k], (long)special, (long)o.c.file.sentences.tokens);
        gx_masked_lm.data.close(&o.c);
    }
}

TEST(the_text_is_the_same_for_any_number_of_threads)
{
    Opened o;
    GxSentences one;
    put_documents("threads.txt", 60);
    const GxMaskedLm options = options_of(0.15, 0, 0, 0);
    if (!opened(&o, "threads.txt", 16, &options)) return;
    CHECK(gx_sentences_open(&one, &o.c.file.data, &o.c.tokenizer, 14, 1, NULL, &o.g.error) == GX_OK, "%s",
          o.g.error.message);
    CHECK(one.tokens == o.c.file.sentences.tokens &&
              !memcmp(one.token, o.c.file.sentences.token, (size_t)one.tokens * 4),
          "tokens");
    gx_sentences_close(&one);
    gx_masked_lm.data.close(&o.c);
}

// ---- a BERT is trained ---------------------------------------------------------------------------------------------

static struct {
    double window[32], validation[2][32]; // losses, by the step; of the validation both
    int64_t right[32], masked[32];        // tokens of a validation
} told;                                   // in numbers

// How many labels of b's first target have the largest of all logits, which the head writes; and the head's own count
// of every second label, where the others are ignored.
static GxTrainer *running;
static int64_t right_of(GxContext *g, const GxBatch *b)
{
    enum { MOST = 200 };
    static float logits[MOST * VOCAB];
    int32_t labels[MOST];
    int64_t right = 0, half = 0, counted = 0;
    GxBatch other = *b;
    GxTarget *t = &other.target[0];
    if (!CHECK(t->n <= MOST, "%ld masks", (long)t->n)) return 0;
    t->labels = t->labels_host = NULL, t->right = NULL, other.target[1].labels = NULL;
    t->logits = gx_rows(logits, GX_F32, t->n, VOCAB);
    gx_runner_forward(g, &running->session.runner, &other, NULL);
    for (int64_t i = 0; i < t->n; i++) {
        const int32_t label = b->target[0].labels[i];
        int larger = 0;
        for (int v = 0; v < VOCAB; v++) larger += v != label && logits[i * VOCAB + v] >= logits[i * VOCAB + label];
        right += larger == 0, half += larger == 0 && i % 2;
        labels[i] = i % 2 ? label : GX_IGNORE_INDEX;
    }
    t->logits = gx_no_rows(), t->labels = labels, t->right = &counted;
    double loss[GX_MAX_LOSSES] = {0}; // not the validation's
    gx_runner_forward(g, &running->session.runner, &other, loss);
    CHECK(counted == half, "of every second label %ld are right, the head says %ld", (long)half, (long)counted);
    return right;
}

// Beside what the task sees of pairs: their loss, out of the results that the head has written.
static double seen_pairs;
static int64_t seen_right;
static void see_pairs(GxContext *g, void *self, const GxBatch *b)
{
    const GxMaskedLm *c = (const GxMaskedLm *)self;
    gx_masked_lm.batch.see(g, self, b);
    if (!b) seen_pairs = 0;
    for (int64_t i = 0; b && c->nsp && g->world == 1 && i < b->target[1].n; i++) {
        const float *x = (const float *)c->pairs_host + 2 * i;
        seen_pairs += log(exp((double)x[0]) + exp((double)x[1])) - x[b->target[1].labels[i]];
    }
    if (!b) seen_right = 0;
    else if (g->world == 1) seen_right += right_of(g, b);
}

static int train_task(GxContext *g, int argc, char **argv)
{
    GxTask task = gx_masked_lm;
    static const GxReporter reporter = {hear_out, NULL, NULL};
    GxTrainer t = GX_ZERO;
    GxLosses losses;
    char *own[80], path[GX_PATH];
    for (int i = 0; i < argc; i++) { // "text@" is text0 on rank 0 and text1 on rank 1
        const size_t n = strlen(argv[i]);
        snprintf(path, sizeof path, "%.*s%d", (int)n - 1, argv[i], g->rank);
        own[i] = n && argv[i][n - 1] == '@' ? strdup(path) : strdup(argv[i]);
    }
    g->reporter = &reporter;
    g->log.write = hear_log;
    task.batch.see = see_pairs;
    if (g->world == 1) running = &t;
    gx_trainer_open(&t, g, &gx_bert, &task, NULL, argc, own);
    while (gx_trainer_next(&t)) {
        gx_trainer_step(&t);
        gx_evaluate(&t.session, 0, &losses);
        if (g->world == 1)
            CHECK(fabs(seen_pairs - losses.sum[1]) <= test_bound(10) * losses.sum[1],
                  "results of pairs have the loss %.9g, the head says %.9g", seen_pairs, losses.sum[1]);
        int64_t right = ((const GxMaskedLm *)t.run.self)->right;
        gx_all_reduce(g, GX_AXIS_ALL, GX_SUM, &right, 1, GX_I64);
        if (g->world == 1)
            CHECK(right == seen_right, "%ld tokens are right, and %ld of the largest logits", (long)right,
                  (long)seen_right);
        gx_trainer_report(&t);
        if (g->rank != 0 || t.run.at.step >= 32) continue;
        told.right[t.run.at.step] = right, told.masked[t.run.at.step] = losses.count[0];
        for (int k = 0; k < 2; k++) told.validation[k][t.run.at.step] = gx_losses_mean(&losses, k);
        told.window[t.run.at.step] = gx_step_loss(&t.session.seen);
    }
    const int status = gx_trainer_close(&t);
    for (int i = 0; i < argc; i++) free(own[i]);
    return status;
}

// Exit status of a tiny model's training, in folder/<name>.
static int train(const char *name, const char *more)
{
    char line[4 * GX_PATH], *argv[80] = {(char *)"train"};
    int argc = 1;
    memset(&said, 0, sizeof said), memset(&told, 0, sizeof told);
    snprintf(
        line, sizeof line,
        "--output_dir %s/%s --hidden_size 16 --intermediate_size 32 --num_hidden_layers 2 --num_attention_heads 2 "
        "--seq_len 16 --threads 1 --logging_steps 1 --learning_rate 0.01 --lr_scheduler_type constant --warmup_steps 1 "
        "--validation_fraction 0.1 %s",
        folder, name, more);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    return gx_launch(train_task, argc, argv);
}

static const char *data_of(const char *text) // flags
{
    static char flags[500];
    snprintf(flags, sizeof flags, "--train_data %.200s/%.40s --tokenizer %.200s/words", folder, text, folder);
    return flags;
}

static int trained(const char *name, const char *text, const char *more)
{
    char flags[1200];
    snprintf(flags, sizeof flags, "%s %.500s", data_of(text), more);
    return CHECK(train(name, flags) == 0, "%s %s: %s", name, more, said.log);
}

static void put_easy(const char *name) // what a tiny model learns some of, soon
{
    char text[4000] = "";
    for (int d = 0; d < 60; d++) strcat(text, d % 2 ? "a b c a b c\na b\nc a b c\n\n" : "d e f d\ne f d e f\n\n");
    put(name, text);
}

TEST(it_is_trained_validated_shown_and_saved_with_its_tokenizer)
{
    char flags[600];
    GxTokenizer t;
    GxError err = GX_ZERO;
    put_easy("train.txt");
    for (int nsp = 0; nsp < 2; nsp++) {
        if (!trained("plain", "train.txt", nsp ? "--nsp --max_steps 12 --overwrite_output_dir" : "--max_steps 12"))
            return;
        CHECK(!strstr(said.log, "rror"), "%s", said.log);
        CHECK(strstr(said.out, "data: ") && strstr(said.out, "in 60 documents") &&
                  strstr(said.out, "by token frequency alone: loss ") && strstr(said.out, "perplexity ") &&
                  strstr(said.out, " tokens\n") && strstr(said.out, "  masked ") && strstr(said.out, "  filled ") &&
                  strstr(said.out, "  was "),
              "%s", said.out);
        const char *masked = strstr(said.out, "  masked "), *filled = strstr(said.out, "  filled ");
        if (!CHECK(masked && filled && masked < filled, "%s", said.out)) return;
        const char *mask = strstr(masked, "[MASK]"), *end = strchr(filled, '\n');
        CHECK(mask && mask < filled, "which masked tokens become: %s", masked);
        mask = strstr(filled, "[MASK]");
        CHECK(!mask || mask > end, "what was masked is not filled in: %s", filled);
        CHECK(!strstr(said.out, "of pairs right") == !nsp && !strstr(said.out, "of pairs ") == !nsp, "%s", said.out);
        CHECK(told.window[12] < told.window[1] - 1 && told.validation[0][12] < told.validation[0][1] - 1,
              "nothing is learned: %g, %g", told.window[12], told.validation[0][12]);
        CHECK(told.right[12] > 0 && told.right[12] < told.masked[12], "%ld of %ld tokens are right",
              (long)told.right[12], (long)told.masked[12]);
        char *log = NULL, right[60];
        int64_t bytes;
        CHECK(gx_file_read(path_of("plain/log.jsonl"), 1 << 20, &log, &bytes, &err) == GX_OK, "%s", err.message);
        snprintf(right, sizeof right, "\"eval_accuracy\": %.9g", (double)told.right[12] / (double)told.masked[12]);
        CHECK(log && strstr(log, right), "no %s in %s", right, log);
        CHECK(log && !strstr(log, "nsp_loss") == !nsp && !strstr(log, "\"mlm_loss\"") == !nsp, "%s", log);
        free(log);
    }
    CHECK(gx_tokenizer_open(&t, path_of("plain/checkpoint-12"), &err) == GX_OK && t.vocab_size == VOCAB, "%s",
          err.message);
    gx_tokenizer_close(&t);
    // from there without --tokenizer
    snprintf(flags, sizeof flags,
             "--train_data %.200s/train.txt --max_steps 1 --nsp --model %.200s/plain/checkpoint-12", folder, folder);
    CHECK(train("further", flags) == 0 && told.window[1] < 7, "%s, loss %g", said.log, told.window[1]);
    snprintf(flags, sizeof flags, "--train_data %.200s/train.txt --dry_run --nsp --model %.200s/plain/checkpoint-12",
             folder, folder);
    CHECK(train("dry", flags) == 0 && strstr(said.out, "memory plan"), "%s", said.log);
}

TEST(accuracy_is_that_of_one_rank_in_every_mode)
{
    static const char *const ways[] = {"",
                                       "--ranks 2 --mode tp",
                                       "--ranks 2 --mode sp",
                                       "--ranks 2 --mode galaxy",
                                       "--ranks 2 --mode galaxy2",
                                       "--ranks 2 --att tp --con none --mlp tp --ends none",
                                       "--ranks 2 --micro_batch_size 3",
                                       "--ranks 4 --tp 2 --mode tp --head_chunk 2"};
    put_easy("easy.txt");
    if (!trained("easy", "easy.txt", "--max_steps 12 --sample_lines 0")) return;
    const int64_t right = told.right[12], masked = told.masked[12];
    CHECK(right > 0 && right < masked, "%ld of %ld tokens", (long)right, (long)masked);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        char flags[400];
        double found = -1;
        snprintf(flags, sizeof flags, "--evaluate --model %s %s", path_of("easy/checkpoint-12"), ways[w]);
        if (!trained("none", "easy.txt", flags)) continue;
        const char *accuracy = strstr(said.out, "accuracy ");
        if (accuracy) sscanf(accuracy, "accuracy %lf", &found);
        CHECK(fabs(found * (double)masked - (double)right) <= 5e-5 * (double)masked,
              "%s: accuracy %g, %ld of %ld tokens", ways[w], found, (long)right, (long)masked);
    }
}

// Logits that are all the same find nothing, whatever is masked.
TEST(a_model_that_says_the_same_of_all_tokens_finds_none)
{
    put_documents("zero.txt", 60);
    if (!trained("zero", "zero.txt", "--max_steps 1 --initializer_range 0 --learning_rate 0 --sample_lines 0")) return;
    CHECK(told.right[1] == 0 && told.masked[1] > 0 && fabs(told.validation[0][1] - log(VOCAB)) < 1e-4, "%ld, loss %g",
          (long)told.right[1], told.validation[0][1]);
}

TEST(a_validation_without_masks_is_said_once_and_why)
{
    put_documents("rare.txt", 60);
    if (!trained("rare", "rare.txt",
                 "--max_steps 6 --mlm_probability 0.01 --max_eval_samples 1 --eval_steps 2 --sample_lines 0 --packing "
                 "false"))
        return;
    const char *once = strstr(said.log, "a validation has no masked token, so its loss and accuracy are unknown");
    CHECK(once && !strstr(once + 1, "a validation has no masked token"), "%s", said.log);
}

TEST(another_padding_than_the_models_is_said_once)
{
    put_documents("pad.txt", 60);
    const char *flags = "--max_steps 1 --sample_lines 0 --ranks 2 --micro_batch_size 4 --pad_token_id 3";
    if (!trained("pad", "pad.txt", flags)) return;
    const char *once = strstr(said.log, "the model's pad_token_id is 3, but the tokenizer's padding has the id 0");
    CHECK(once && !strstr(once + 1, "the model's pad_token_id"), "%s", said.log);
    if (!trained("pad", "pad.txt", "--max_steps 1 --sample_lines 0 --overwrite_output_dir --pad_token_id -1")) return;
    CHECK(!strstr(said.log, "pad_token_id"), "%s", said.log);
}

// Every step's loss and validation, of any arrangement of ranks, are those of one rank: to rounding, through a chain of
// some hundred sums per step. What is masked and what is dropped follows from a sample's number alone, whichever rank
// and micro-batch it is in.
TEST(ranks_train_as_one_does)
{
    static const char *const ways[] = {"--ranks 2 --tp 2 --mode tp",
                                       "--ranks 2 --tp 2 --mode sp",
                                       "--ranks 2",
                                       "--ranks 4 --tp 2 --mode galaxy --micro_batch_size 4",
                                       "--ranks 3 --dp_batch_size_list 1,2,1 --gradient_accumulation_steps 2",
                                       "--ranks 3 --dp_samples_list 5,1,2 --micro_batch_size 2",
                                       "--ranks 4 --tp 2 --mode sp --dp_samples_list 3,5 --micro_batch_size 2",
                                       "--ranks 4 --pp 2 --dp_samples_list 7,1 --micro_batch_size 2",
                                       "--micro_batch_size 2 --gradient_accumulation_steps 4",
                                       "--micro_batch_size 8 --head_chunk 3"};
    enum { STEPS = 4, WAYS = sizeof ways / sizeof *ways };
    put_documents("ranks.txt", 60);
    for (int nsp = 0; nsp < 2; nsp++) {
        double window[STEPS + 1], validation[2][STEPS + 1];
        int64_t right[STEPS + 1];
        char flags[400], name[40];
        const char *common = nsp ? "--max_steps 4 --sample_lines 1 --global_batch_size 8 --nsp"
                                 : "--max_steps 4 --sample_lines 1 --global_batch_size 8 --whole_word_mask";
        snprintf(name, sizeof name, "one%d", nsp);
        snprintf(flags, sizeof flags, "%s --micro_batch_size 8", common);
        if (!trained(name, "ranks.txt", flags)) return;
        memcpy(window, told.window, sizeof window);
        memcpy(right, told.right, sizeof right);
        for (int k = 0; k < 2; k++) memcpy(validation[k], told.validation[k], sizeof validation[k]);
        for (int i = 0; i < WAYS; i++) {
            snprintf(flags, sizeof flags, "%s %s%s", common, ways[i],
                     strstr(ways[i], "batch") ? ""
                     : i < 2                  ? " --micro_batch_size 8"
                                              : " --micro_batch_size 4");
            snprintf(name, sizeof name, "ranks%d_%d", nsp, i);
            if (!trained(name, "ranks.txt", flags)) continue;
            for (int s = 1; s <= STEPS; s++) {
                const double bound = test_bound(300 * s);
                CHECK(fabs(told.window[s] - window[s]) <= bound * window[s], "%s: step %d: loss %.9g, of one rank %.9g",
                      flags, s, told.window[s], window[s]);
                CHECK(told.right[s] == right[s], "%s: step %d: %ld tokens are right, of one rank %ld", flags, s,
                      (long)told.right[s], (long)right[s]);
                for (int k = 0; k <= nsp; k++)
                    CHECK(fabs(told.validation[k][s] - validation[k][s]) <= bound * validation[k][s],
                          "%s: step %d: validation %d: %.9g, of one rank %.9g", flags, s, k, told.validation[k][s],
                          validation[k][s]);
            }
            CHECK(strstr(said.out, "sample:"), "no sample: %s", said.out);
        }
    }
}

TEST(a_run_that_is_resumed_goes_on_as_if_it_had_not_ended)
{
    put_documents("resume.txt", 60);
    for (int nsp = 0; nsp < 2; nsp++) {
        char flags[700], name[20];
        double whole;
        snprintf(name, sizeof name, "whole%d", nsp);
        snprintf(flags, sizeof flags, "--max_steps 24 --micro_batch_size 8 --sample_lines 0%s", nsp ? " --nsp" : "");
        if (!trained(name, "resume.txt", flags)) return; // several epochs
        whole = told.window[24];
        snprintf(name, sizeof name, "half%d", nsp);
        snprintf(flags, sizeof flags, "--max_steps 13 --micro_batch_size 8 --sample_lines 0%s", nsp ? " --nsp" : "");
        if (!trained(name, "resume.txt", flags)) return;
        snprintf(flags, sizeof flags, "--max_steps 24 --micro_batch_size 8 --sample_lines 0 --resume auto%s",
                 nsp ? " --nsp" : "");
        if (!trained(name, "resume.txt", flags)) return;
        CHECK(told.window[24] == whole, "loss %.9g, without a break %.9g", told.window[24], whole);
        // with other masks it is another run
        snprintf(flags, sizeof flags, "%s --max_steps 25 --micro_batch_size 8 --resume auto --mlm_probability 0.2%s",
                 data_of("resume.txt"), nsp ? " --nsp" : "");
        CHECK(train(name, flags) == 1 && strstr(said.log, "its mlm_probability differs"), "%s", said.log);
    }
}

TEST(ranks_with_other_texts_or_tokenizers_are_refused)
{
    char flags[600];
    put_documents("text0", 60);
    put_documents("text1", 59);
    put_vocabulary("words0", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    put_vocabulary("words1", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nnew\n");
    snprintf(flags, sizeof flags, "--ranks 2 --max_steps 1 --tokenizer %.200s/words --train_data %.200s/text@", folder,
             folder);
    CHECK(train("texts", flags) == 1 && strstr(said.log, "text1 is a different text here"), "%s", said.log);
    snprintf(flags, sizeof flags, "--ranks 2 --max_steps 1 --tokenizer %.200s/words@ --train_data %.200s/text0", folder,
             folder);
    CHECK(train("tokenizers", flags) == 1 && strstr(said.log, "the tokenizer here is wordpiece-1058-"), "%s", said.log);
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    if (!mkdtemp(folder)) return 1;
    put_vocabulary("words", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    const int status = test_main(argc, argv);
    if (gx_folder_remove(folder, &err) != GX_OK) printf("%s\n", err.message);
    return status;
}
