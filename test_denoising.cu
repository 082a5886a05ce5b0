// test_denoising.cu: what becomes of texts in the pre-training of encoder-decoders, denoising and span_corruption: by
// hand, against a twin in numpy (data/ref/noise.jsonl, made by dev/ref/make_noise.py), by its statistics, and undone;
// batches that depend on seed and sample alone; runs of train_bart.
#define GX_NO_MAIN
#include "train_bart.cu"
#include "test/task_run.h"

// ---- cases in numpy ------------------------------------------------------------------------------------------------

enum { MOST = 200 };
typedef struct {
    int64_t n;
    int32_t at[2 * MOST];
} Ids;

static Ids ids_of(const GxJson *c, const char *key)
{
    Ids ids = GX_ZERO;
    const GxJson *list = gx_json_get(c, key);
    ids.n = gx_json_size(list);
    CHECK(list && ids.n <= MOST, "\"%s\" has %ld numbers", key, (long)ids.n);
    for (int64_t i = 0; i < ids.n && i < MOST; i++) ids.at[i] = (int32_t)gx_json_int(gx_json_at(list, i));
    return ids;
}

static void same_ids(const char *what, const int32_t *found, int64_t n, const int32_t *expected, int64_t of)
{
    if (!CHECK(n == of, "%s: %ld tokens, expected %ld", what, (long)n, (long)of)) return;
    for (int64_t i = 0; i < n; i++)
        if (!CHECK(found[i] == expected[i], "%s[%ld] is %d, expected %d", what, (long)i, found[i], expected[i])) return;
}

static int64_t integer_of(const GxJson *c, const char *key) { return gx_json_int(gx_json_get(c, key)); }
static double number_of(const GxJson *c, const char *key) { return gx_json_double(gx_json_get(c, key)); }

static void each_case(const char *kind, void (*run)(const GxJson *c), int expected)
{
    GxError err = GX_ZERO;
    char *text = NULL;
    int64_t bytes;
    int cases = 0;
    if (!CHECK(gx_file_read("data/ref/noise.jsonl", 1 << 22, &text, &bytes, &err) == GX_OK, "%s", err.message)) return;
    for (char *line = text, *end; *line && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        GxJson *c;
        if (!CHECK(gx_json_parse(&c, line, end - line, "noise.jsonl", &err) == GX_OK, "%s", err.message)) break;
        if (!strcmp(gx_json_string(gx_json_get(c, "kind")), kind)) run(c), cases++;
        gx_json_free(c);
    }
    CHECK(cases == expected, "%d cases, expected %d", cases, expected);
    free(text);
}

#ifdef GX_WITH_JANSSON
#define NEEDS_JSON
#else
#define NEEDS_JSON SKIP("built without jansson")
#endif

static void counts_case(const GxJson *c)
{
    const GxSpanCounts n =
        gx_span_longest(integer_of(c, "source") - 1, number_of(c, "density"), number_of(c, "mean")); // less </s>
    CHECK(n.tokens == integer_of(c, "tokens") && n.noise == integer_of(c, "noise") && n.spans == integer_of(c, "spans"),
          "sources of %ld: %ld tokens, %ld of them noise, %ld spans", (long)integer_of(c, "source"), (long)n.tokens,
          (long)n.noise, (long)n.spans);
}

static void spans_case(const GxJson *c)
{
    const Ids text = ids_of(c, "text"), kept = ids_of(c, "kept"), noise = ids_of(c, "noise"),
              sentinels = ids_of(c, "sentinels"), source = ids_of(c, "source"), target = ids_of(c, "target");
    int32_t to[2][MOST] = {{0}};
    gx_noise_spans(text.at, kept.at, noise.at, kept.n, sentinels.at, to[0], to[1]);
    same_ids("source", to[0], source.n, source.at, source.n);
    same_ids("target", to[1], target.n, target.at, target.n);
}

static void sentences_case(const GxJson *c)
{
    const Ids text = ids_of(c, "text"), ends = ids_of(c, "ends"), order = ids_of(c, "order"),
              expected = ids_of(c, "reordered");
    int32_t end[MOST], reordered[MOST];
    const int64_t n = gx_noise_sentences(text.at, text.n, (int32_t)integer_of(c, "full_stop"), end);
    same_ids("ends", end, n, ends.at, ends.n);
    gx_noise_reorder(text.at, text.n, end, n, order.at, reordered);
    same_ids("reordered", reordered, text.n, expected.at, expected.n);
}

static void masks_case(const GxJson *c)
{
    Ids text = ids_of(c, "text");
    const Ids starts = ids_of(c, "starts"), lengths = ids_of(c, "lengths"), left = ids_of(c, "left"),
              places = ids_of(c, "places"), result = ids_of(c, "result");
    const int32_t mask = (int32_t)integer_of(c, "mask");
    unsigned char flag[2 * MOST];
    CHECK(gx_noise_masked(text.n, number_of(c, "ratio")) == integer_of(c, "masked"), "masked");
    const int64_t n = gx_noise_mask(text.at, text.n, starts.at, lengths.at, starts.n, mask, flag);
    same_ids("left", text.at, n, left.at, left.n);
    gx_noise_insert(text.at, n, places.at, places.n, mask, flag);
    same_ids("result", text.at, n + places.n, result.at, result.n);
}

static void masked_case(const GxJson *c)
{
    const int64_t n = gx_noise_masked(integer_of(c, "n"), number_of(c, "ratio"));
    CHECK(n == integer_of(c, "masked"), "%g of %ld are %ld", number_of(c, "ratio"), (long)integer_of(c, "n"), (long)n);
}

static void lengths_case(const GxJson *c)
{
    GxSpanLengths l;
    const GxJson *below = gx_json_get(c, "below");
    gx_span_lengths(&l, number_of(c, "mean"));
    if (!CHECK(l.n == gx_json_size(below), "%d lengths, expected %ld", l.n, (long)gx_json_size(below))) return;
    for (int i = 0; i < l.n; i++) { // sums of at most 128 terms that numpy has from logarithms; 14 digits
        const double expected = gx_json_double(gx_json_at(below, i));
        CHECK(fabs(l.below[i] - expected) <= 1e-12 * expected, "length %d: %.15g, expected %.15g", i, l.below[i],
              expected);
    }
}

TEST(a_source_is_as_long_as_asked_for_and_has_the_spans_of_numpy)
{
    NEEDS_JSON;
    each_case("counts", counts_case, 30);
}
TEST(spans_become_sentinels_as_in_numpy)
{
    NEEDS_JSON;
    each_case("spans", spans_case, 7);
}
TEST(sentences_end_and_change_places_as_in_numpy)
{
    NEEDS_JSON;
    each_case("sentences", sentences_case, 9);
}
TEST(masks_take_the_place_of_spans_as_in_numpy)
{
    NEEDS_JSON;
    each_case("masks", masks_case, 9);
    each_case("masked", masked_case, 66);
}
TEST(lengths_of_spans_are_those_of_a_poisson_distribution)
{
    NEEDS_JSON;
    each_case("lengths", lengths_case, 5);
}

// ---- by hand -------------------------------------------------------------------------------------------------------

static const char *spelled(const int32_t *ids, int64_t n) // letters, and what is no letter
{
    static char text[MOST];
    for (int64_t i = 0; i < n; i++) text[i] = (char)ids[i];
    text[n] = 0;
    return text;
}
static void spell(const char *text, int32_t *ids)
{
    for (int64_t i = 0; text[i]; i++) ids[i] = text[i];
}
static void is_spelled(const char *what, const int32_t *ids, int64_t n, const char *expected)
{
    CHECK(n == (int64_t)strlen(expected) && !strcmp(spelled(ids, n), expected), "%s is \"%s\", expected \"%s\"", what,
          spelled(ids, n), expected);
}

TEST(a_text_with_spans_is_what_one_writes_by_hand)
{
    static const int32_t kept[] = {2, 1}, noise[] = {3, 2}, sentinel[] = {'0', '1'};
    int32_t text[8], source[8], target[8];
    spell("abcdefgh", text);
    gx_noise_spans(text, kept, noise, 2, sentinel, source, target);
    is_spelled("source", source, 5, "ab0f1");
    is_spelled("target", target, 7, "0cde1gh");
}

// Also: a row of full stops ends one sentence, and its others begin the next; a last token before which there is one
// ends none.
TEST(sentences_in_another_order_are_what_one_writes_by_hand)
{
    static const int32_t order[] = {2, 0, 1}, stays[] = {0};
    int32_t text[20], end[20], to[20];
    spell("ab.c..de", text);
    CHECK(gx_noise_sentences(text, 8, '.', end) == 3 && end[0] == 3 && end[1] == 5 && end[2] == 8, "ends");
    gx_noise_reorder(text, 8, end, 3, order, to);
    is_spelled("reordered", to, 8, ".deab.c.");
    spell("ab.c", text);
    CHECK(gx_noise_sentences(text, 4, '.', end) == 1 && end[0] == 3, "a last token behind a full stop");
    gx_noise_reorder(text, 4, end, 1, stays, to);
    is_spelled("reordered", to, 4, "ab.c");
    CHECK(gx_noise_sentences(text, 3, '.', end) == 1 && end[0] == 3, "a last full stop");
    CHECK(gx_noise_sentences(text, 1, '.', end) == 1 && end[0] == 1, "one token");
}

// The second span ends with the text, the third begins within the first and reaches further.
TEST(masked_spans_are_what_one_writes_by_hand)
{
    static const int32_t start[] = {1, 8, 2}, length[] = {3, 4, 4}, place[] = {5, 0};
    int32_t text[20];
    unsigned char flag[20];
    spell("abcdefghij", text);
    const int64_t n = gx_noise_mask(text, 10, start, length, 3, '_', flag);
    is_spelled("masked", text, n, "a_gh_");
    gx_noise_insert(text, n, place, 2, '_', flag);
    is_spelled("inserted", text, n + 2, "_a_gh__");
    spell("abc", text);
    CHECK(gx_noise_mask(text, 3, start, length, 0, '_', flag) == 3, "nothing is masked");
    is_spelled("nothing", text, 3, "abc");
}

// ---- statistics ----------------------------------------------------------------------------------------------------

// Of n draws, each of `kinds` outcomes should come as often. The statistic is beyond its mean by 6 standard deviations,
// sqrt(2 (kinds - 1)), in less than one case of 10,000.
static void is_uniform(const char *what, const int64_t *count, int kinds, int64_t n)
{
    double sum = 0;
    const double expected = (double)n / kinds;
    for (int i = 0; i < kinds; i++) sum += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    CHECK(sum <= kinds - 1 + 6 * sqrt(2.0 * (kinds - 1)), "%s: chi-square %.1f of %d outcomes", what, sum, kinds);
}

// Of n draws with probability p: 5 standard deviations.
static void is_rate(const char *what, int64_t found, int64_t n, double p)
{
    const double deviation = sqrt((double)n * p * (1 - p));
    CHECK(fabs((double)found - p * (double)n) <= 5 * deviation, "%s: %ld of %ld, expected %.0f +- %.0f", what,
          (long)found, (long)n, p * (double)n, 5 * deviation);
}

enum { DRAWS = 20000 };
static GxNoiseDraws draws_of(int64_t sample) { return gx_noise_draws(17, sample, gx_random_site(GX_SITE_MASK, 9)); }

// 7 in 4 parts: 20 ways.
TEST(every_way_to_cut_a_number_into_parts_is_as_likely)
{
    int64_t count[64] = {0}, seen[20], ways = 0;
    int32_t length[8];
    for (int64_t s = 0; s < DRAWS; s++) {
        GxNoiseDraws d = draws_of(s);
        gx_noise_parts(&d, 7, 4, length);
        const int64_t sum = length[0] + length[1] + length[2] + length[3];
        if (!CHECK(sum == 7 && length[0] > 0 && length[1] > 0 && length[2] > 0 && length[3] > 0, "%d %d %d %d",
                   length[0], length[1], length[2], length[3]))
            return;
        count[(length[0] - 1) * 16 + (length[1] - 1) * 4 + length[2] - 1]++;
    }
    for (int i = 0; i < 64; i++)
        if (count[i] && CHECK(ways < 20, "too many")) seen[ways++] = count[i];
    CHECK(ways == 20, "%ld ways of 20", (long)ways);
    is_uniform("parts", seen, 20, DRAWS);
    GxNoiseDraws d = draws_of(0);
    gx_noise_parts(&d, 5, 1, length);
    CHECK(length[0] == 5, "one part has %d", length[0]);
    gx_noise_parts(&d, 5, 5, length);
    for (int i = 0; i < 5; i++) CHECK(length[i] == 1, "part %d of 5 has %d", i, length[i]);
}

TEST(every_choice_and_every_order_is_as_likely)
{
    int64_t choice[16] = {0}, order[27] = {0}, moved[3] = {0}, choices[12], orders[6];
    int n = 0;
    for (int64_t s = 0; s < DRAWS; s++) {
        int32_t chosen[4], room[8];
        GxNoiseDraws d = draws_of(s);
        gx_noise_choose(&d, 4, 2, chosen);
        choice[4 * chosen[0] + chosen[1]]++;
        CHECK((1 << chosen[0] | 1 << chosen[1] | 1 << chosen[2] | 1 << chosen[3]) == 15, "not an order");
        gx_noise_order(&d, 3, 1, chosen, room);
        order[9 * chosen[0] + 3 * chosen[1] + chosen[2]]++;
        gx_noise_order(&d, 3, 0.5, chosen, room); // two of three change places, or stay, as likely
        for (int i = 0; i < 3; i++) moved[i] += chosen[i] != i;
    }
    for (int i = 0; i < 16; i++)
        if (i / 4 != i % 4) choices[n++] = choice[i];
    is_uniform("choices", choices, 12, DRAWS);
    n = 0;
    for (int i = 0; i < 27; i++)
        if (order[i] && CHECK(n < 6, "too many")) orders[n++] = order[i];
    CHECK(n == 6, "%d orders of 6", n);
    is_uniform("orders", orders, 6, DRAWS);
    for (int i = 0; i < 3; i++) is_rate("a place that changes", moved[i], DRAWS, 2.0 / 3 / 2);
}

// The last length is cut, so it is not looked at; and none is where only one is needed.
TEST(lengths_of_spans_are_drawn_until_they_cover_what_is_masked)
{
    enum { MASKED = 60 };
    GxSpanLengths l;
    int64_t count[20] = {0}, drawn = 0, sum = 0;
    int32_t length[MASKED];
    gx_span_lengths(&l, 3);
    for (int64_t s = 0; s < DRAWS / 10; s++) {
        GxNoiseDraws d = draws_of(s);
        int64_t inserted, covered = 0;
        const int64_t n = gx_noise_lengths(&d, &l, MASKED, length, &inserted);
        for (int64_t i = 0; i < n; i++) CHECK(length[i] > 0, "a length of 0"), covered += length[i];
        CHECK(covered == MASKED, "%ld are covered", (long)covered);
        count[0] += inserted, drawn += inserted;
        for (int64_t i = 0; i < n && i < 8;
             i++) // the first 8 that are not 0: never the last, with 60 to cover, but by 1e-7
            count[gx_min(length[i], 19)]++, sum += length[i], drawn++;
    }
    // 0 is drawn as often as 1 - e^-3 is not, of all draws; the others among themselves as in the distribution
    const int64_t others = drawn - count[0];
    double p = exp(-3);
    for (int k = 1; k < 12; k++) {
        p *= 3.0 / k;
        is_rate("a length", count[k], others, p / (1 - exp(-3)));
    }
    const double mean = 3 / (1 - exp(-3)), variance = (3 + 9) / (1 - exp(-3)) - mean * mean;
    CHECK(fabs((double)sum / (double)others - mean) <= 5 * sqrt(variance / (double)others),
          "a mean length of %g, not %g", (double)sum / (double)others, mean);
}

static GxInfilling infilling_of(double ratio, double lambda, double permute)
{
    GxInfilling how = GX_ZERO;
    how.mask_ratio = ratio, how.permute_ratio = permute, how.mask = 1, how.full_stop = 2;
    gx_span_lengths(&how.lengths, lambda);
    return how;
}

// Of a text of different tokens: what a source has of them is in their order, the rest behind masks.
TEST(a_source_has_its_masks_and_the_rest_of_the_text)
{
    static const double settings[][2] = {{0.3, 3}, {0.15, 3}, {1, 3}, {0.6, 1}, {0, 3}};
    static const int sizes[] = {1, 2, 7, 100};
    GxNoiseRoom room = GX_ZERO;
    GxError err = GX_ZERO;
    int32_t text[100], source[101];
    int64_t zeros = 0;
    if (!CHECK(gx_noise_room_open(&room, 100, &err) == GX_OK, "%s", err.message)) return;
    for (int i = 0; i < 100; i++) text[i] = 10 + i;
    for (int s = 0; s < 5; s++)
        for (int z = 0; z < 4; z++) {
            const int64_t n = sizes[z], most = gx_noise_masked(n, settings[s][0]);
            const GxInfilling how = infilling_of(settings[s][0], settings[s][1], 0);
            for (int64_t sample = 0; sample < 500; sample++) {
                GxNoiseDraws d = draws_of(sample);
                source[n] = -7;
                const int64_t m = gx_noise_infill(&d, &how, text, n, source, &room);
                int64_t shown = 0, masks = 0, in_row = 1, needless = 0;
                int32_t before = 9;
                for (int64_t i = 0; i < m; i++) {
                    masks += source[i] == how.mask;
                    if (source[i] == how.mask) continue;
                    in_row = in_row && source[i] > before;
                    needless +=
                        i && source[i - 1] == how.mask && i > 1 && source[i - 2] != how.mask && source[i] == before + 1;
                    before = source[i], shown++;
                }
                zeros += needless; // a mask with nothing behind it
                if (!CHECK(m <= n && source[n] == -7 && in_row && n - shown <= most && (most == 0) == (masks == 0) &&
                               masks >= (shown < n),
                           "%ld tokens, sample %ld: %ld shown and %ld masks", (long)n, (long)sample, (long)shown,
                           (long)masks))
                    break;
            }
        }
    CHECK(zeros > 1000, "only %ld masks of nothing", (long)zeros);
    gx_noise_room_close(&room);
}

// With spans of one token none overlap, and none reaches behind the end.
TEST(as_many_tokens_are_masked_as_asked_for)
{
    GxNoiseRoom room = GX_ZERO;
    GxError err = GX_ZERO;
    int32_t text[100], source[100];
    int64_t of_place[100] = {0};
    GxInfilling how = infilling_of(0.25, 3, 0);
    how.lengths.n = 2, how.lengths.below[0] = 0, how.lengths.below[1] = 1; // always 1
    if (!CHECK(gx_noise_room_open(&room, 100, &err) == GX_OK, "%s", err.message)) return;
    for (int i = 0; i < 100; i++) text[i] = 10 + i;
    for (int64_t sample = 0; sample < DRAWS / 10; sample++) {
        GxNoiseDraws d = draws_of(sample);
        int64_t masks = 0;
        CHECK(gx_noise_infill(&d, &how, text, 100, source, &room) == 100, "tokens are lost");
        for (int i = 0; i < 100; i++) masks += source[i] == 1, of_place[i] += source[i] == 1;
        CHECK(masks == 25, "%ld masks", (long)masks);
    }
    for (int i = 0; i < 100; i++) is_rate("a place", of_place[i], DRAWS / 10, 0.25);
    gx_noise_room_close(&room);
}

// Of four tokens a span of two becomes a mask. Behind it or before it another mask is inserted, at any of four places with
// the same probability: it is the last token of the source in 1/4 of the cases, and the span's mask, which is the last of
// what is left in 1/3, stays last in the other 3/4 of these: 1/4 + 1/3 * 3/4. The same for the first token.
TEST(masks_of_nothing_are_inserted_anywhere)
{
    GxNoiseRoom room = GX_ZERO;
    GxError err = GX_ZERO;
    static const int32_t text[] = {10, 11, 12, 13};
    int32_t source[4];
    int64_t inserted = 0, first = 0, last = 0;
    GxInfilling how = infilling_of(0.5, 3, 0);
    how.lengths.n = 3, how.lengths.below[0] = how.lengths.below[1] = 0.5, how.lengths.below[2] = 1; // 0 or 2
    if (!CHECK(gx_noise_room_open(&room, 4, &err) == GX_OK, "%s", err.message)) return;
    for (int64_t sample = 0; sample < DRAWS; sample++) {
        GxNoiseDraws d = draws_of(sample);
        const int64_t n = gx_noise_infill(&d, &how, text, 4, source, &room);
        int64_t masks = 0;
        for (int64_t i = 0; i < n; i++) masks += source[i] == how.mask;
        if (masks < 2) continue; // nothing is inserted, also where the span of one token at the end has lost none
        inserted++, first += source[0] == how.mask, last += source[3] == how.mask;
    }
    is_rate("sources with another mask", inserted, DRAWS, 0.5 * 3 / 4); // 0 was drawn first; three starts of four
    is_rate("a mask in front", first, inserted, 0.5);
    is_rate("a mask at the end", last, inserted, 0.5);
    gx_noise_room_close(&room);
}

// ---- undone --------------------------------------------------------------------------------------------------------

// The text of a source and its target: each sentinel is replaced by what the target has behind it.
static int64_t undo(const int32_t *source, int64_t n, const int32_t *target, int64_t m, int32_t first_sentinel,
                    int32_t *text)
{
    int64_t to = 0, at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (source[i] < first_sentinel) {
            text[to++] = source[i];
            continue;
        }
        if (at >= m || target[at++] != source[i]) return -1;
        while (at < m && target[at] < first_sentinel) text[to++] = target[at++];
    }
    return at == m ? to : -1;
}

TEST(a_source_with_the_spans_of_its_target_is_the_text)
{
    enum { SENTINEL = 1000 };
    int32_t text[MOST], kept[MOST], noise[MOST], sentinel[MOST], source[2 * MOST], target[2 * MOST], back[2 * MOST];
    for (int i = 0; i < MOST; i++) text[i] = 10 + i, sentinel[i] = SENTINEL + MOST - 1 - i;
    for (int64_t sample = 0; sample < 3000; sample++) {
        GxNoiseDraws d = draws_of(sample);
        const int64_t n = 2 + gx_noise_below(&d, MOST - 2);
        const double density = 0.01 * (double)(1 + gx_noise_below(&d, 90)),
                     mean = 1 + 0.1 * (double)gx_noise_below(&d, 50);
        const GxSpanCounts of = gx_span_counts(n, density, mean);
        gx_noise_parts(&d, of.noise, of.spans, noise);
        gx_noise_parts(&d, n - of.noise, of.spans, kept);
        gx_noise_spans(text, kept, noise, of.spans, sentinel, source, target);
        const int64_t m = undo(source, gx_span_source(of), target, gx_span_target(of), SENTINEL, back);
        if (!CHECK(m == n && !memcmp(back, text, (size_t)n * sizeof *text), "%ld tokens, density %g, spans of %g: %ld",
                   (long)n, density, mean, (long)m))
            return;
        CHECK(source[gx_span_source(of) - 1] >= SENTINEL && source[0] < SENTINEL, "it ends with a sentinel");
    }
}

// ---- tasks ---------------------------------------------------------------------------------------------------------

enum { PAD, UNK, CLS, SEP, MASK, STOP, WORD, WORDS = 60, SENTINELS = 12, VOCAB = WORD + WORDS + SENTINELS };
static const GxTextFrame frame = {CLS, SEP, PAD, SEP, 0, 0, 0, {0, 0}};

typedef struct { // a task that is open
    const GxTask *task;
    GxContext g;
    GxDenoising c;
    GxTaskSetup setup;
} Opened;

static int opens_with(Opened *o, const GxTask *task, const char *tokenizer, const GxTextFrame *of, const char *text,
                      int64_t S, int64_t T, double validation)
{
    memset(o, 0, sizeof *o);
    o->task = task;
    o->g.device = gx_device_cpu(), o->g.world = 1, o->g.threads = 2;
    for (int i = 0; i < task->options.n_fields; i++)
        if (task->options.fields[i].type == GX_FIELD_DOUBLE)
            *(double *)((char *)&o->c + task->options.fields[i].offset) = atof(task->options.fields[i].default_text);
    o->c.validation_fraction = validation, o->c.max_source_length = S, o->c.pack_texts = 1;
    snprintf(o->c.train_data, GX_PATH, "%s", path_of(text));
    snprintf(o->c.tokenizer_folder, GX_PATH, "%s", path_of(tokenizer));
    snprintf(o->c.split_special_tokens, GX_FIELD_TEXT, "auto");
    o->setup.seq_len = T, o->setup.model = "", o->setup.frame = of;
    return task->data.open(&o->g, &o->c, &o->setup) == GX_OK;
}

static int opens(Opened *o, const GxTask *task, const char *text, int64_t S, int64_t T, double validation)
{
    return CHECK(opens_with(o, task, "tokens", &frame, text, S, T, validation), "%s", o->g.error.message);
}

typedef struct { // a batch and its block
    GxBatch b, source;
    char *block;
    int64_t bytes;
} Batch;

static void lay(Batch *b, const Opened *o, int64_t B)
{
    memset(b, 0, sizeof *b);
    b->b.T = o->c.T[GX_OF_TARGET], b->source.T = o->c.T[GX_OF_SOURCE], b->b.B = b->source.B = B,
    b->b.source = &b->source;
    b->bytes = o->task->batch.layout(&o->c, &b->b, NULL, NULL);
    b->block = (char *)aligned_alloc(GX_ALIGN, (size_t)b->bytes);
    o->task->batch.layout(&o->c, &b->b, b->block, b->block);
}

static void fill(Batch *b, Opened *o, int64_t first, uint64_t seed)
{
    b->b.sample = first;
    CHECK(o->task->batch.fill(&o->g, &o->c, &b->b, b->block, seed, &o->g.error) == GX_OK, "%s", o->g.error.message);
}

// The tokens of text number `text` of a column: of the source, or of the target, from its labels. Returns how many; 0:
// no such text.
static int64_t text_of(const Batch *b, int64_t column, int which, int text, int32_t *ids)
{
    const GxBatch *of = which == GX_OF_SOURCE ? &b->source : &b->b;
    int64_t begin = 0;
    for (; text > 0 && begin < of->T; text--) begin = of->documents[2 * (begin * of->B + column) + 1];
    if (begin >= of->T) return 0;
    const int64_t n = of->documents[2 * (begin * of->B + column) + 1] - begin;
    for (int64_t i = 0; i < n && which == GX_OF_SOURCE; i++) ids[i] = of->tokens[(begin + i) * of->B + column];
    for (int64_t i = 0; i < b->b.target[0].n && which == GX_OF_TARGET; i++) {
        const int64_t row = b->b.target[0].rows[i], t = row / of->B - begin;
        if (row % of->B == column && t >= 0 && t < n) ids[t] = b->b.target[0].labels[i];
    }
    return n > 0 ? n : 0;
}

// Sentences of different words of a few to a document, so that a token says where it is from.
static void write_texts(void)
{
    static char text[20000];
    char vocab[900] = ".\n";
    for (int i = 0; i < WORDS; i++) sprintf(vocab + strlen(vocab), "w%d\n", i);
    for (int i = SENTINELS - 1; i >= 0; i--) sprintf(vocab + strlen(vocab), "<extra_id_%d>\n", i);
    write_vocab(vocab);
    size_t at = 0;
    for (int d = 0; d < 30; d++) {
        for (int s = 0; s < 2 + d % 3; s++) {
            for (int w = 0; w < 3 + (d + s) % 3; w++)
                at += (size_t)sprintf(text + at, "w%d ", (d * 7 + s * 5 + w) % WORDS);
            at += (size_t)sprintf(text + at, ".\n");
        }
        at += (size_t)sprintf(text + at, "\n");
    }
    write_file("text.txt", text);
}

// Each text of the training part comes once in an epoch, as a target; its source has its words.
TEST(targets_of_denoising_are_the_texts_and_each_comes_once_in_an_epoch)
{
    enum { T = 30, EPOCHS = 2 };
    Opened o;
    Batch b;
    int32_t ids[T], source[T];
    if (!opens(&o, &gx_denoising, "text.txt", 0, T, 0.2)) return;
    int *seen = (int *)calloc((size_t)o.c.train.n, sizeof *seen), texts = 0;
    lay(&b, &o, 1);
    for (int64_t s = 0; texts < EPOCHS * o.c.train.n && s < 1000; s++) {
        fill(&b, &o, s, 5);
        for (int k = 0;; k++, texts++) {
            const int64_t n = text_of(&b, 0, GX_OF_TARGET, k, ids), m = text_of(&b, 0, GX_OF_SOURCE, k, source);
            if (n == 0) break;
            CHECK(ids[0] == CLS && ids[n - 1] == SEP && source[0] == CLS && source[m - 1] == SEP && m <= n,
                  "the frame");
            int64_t i = 0, masks = 0;
            while (i < o.c.train.n &&
                   (o.c.train.tokens[i] != n - 2 ||
                    memcmp(o.c.file.sentences.token + o.c.train.begin[i], ids + 1, (size_t)(n - 2) * 4)))
                i++;
            if (!CHECK(i < o.c.train.n, "a target that is no text")) continue;
            seen[i]++;
            for (int64_t t = 1; t < m - 1; t++) {
                int is_there = source[t] == MASK;
                masks += source[t] == MASK;
                for (int64_t u = 1; u < n - 1; u++) is_there |= source[t] == ids[u];
                CHECK(is_there, "token %d is not of the text", source[t]);
            }
            CHECK(masks > 0, "no mask in a text of %ld tokens", (long)n);
        }
    }
    for (int64_t i = 0; i < o.c.train.n; i++) CHECK(seen[i] == EPOCHS, "text %ld came %d times", (long)i, seen[i]);
    CHECK(o.setup.epoch_samples > 0 && o.setup.epoch_samples < o.c.train.n, "%ld samples of %ld texts",
          (long)o.setup.epoch_samples, (long)o.c.train.n);
    free(seen), free(b.block);
    o.task->data.close(&o.c);
}

// All pieces together, undone, are the text of the part, without its last tokens.
TEST(pieces_of_span_corruption_are_the_tokens_of_the_text_in_a_row)
{
    enum { S = 16, T = 30 };
    Opened o;
    Batch b;
    int32_t source[T], target[T], back[2 * T];
    if (!opens(&o, &gx_span_corruption, "text.txt", S, T, 0.2)) return;
    const int64_t L = o.c.spans.tokens, n = o.c.file.train_tokens / L;
    CHECK(o.c.train.n == n && o.setup.epoch_samples == n && o.c.held_out.n > 0, "%ld pieces", (long)o.c.train.n);
    unsigned char *seen = (unsigned char *)calloc((size_t)n, 1);
    lay(&b, &o, 2);
    for (int64_t s = 0; s < n; s++) {
        fill(&b, &o, s, 5); // column 1 is the next sample
        const int64_t m = text_of(&b, 0, GX_OF_SOURCE, 0, source), k = text_of(&b, 0, GX_OF_TARGET, 0, target);
        CHECK(m == S && k == gx_span_target(o.c.spans) + 2 && source[0] == CLS && source[S - 1] == SEP &&
                  target[0] == CLS && target[k - 1] == SEP && target[1] == VOCAB - 1,
              "a source of %ld, a target of %ld, the first sentinel %d", (long)m, (long)k, target[1]);
        CHECK(undo(source + 1, m - 2, target + 1, k - 2, VOCAB - SENTINELS, back) == L, "it cannot be undone");
        int64_t i = 0;
        while (i < n && memcmp(o.c.file.sentences.token + i * L, back, (size_t)L * 4)) i++;
        if (CHECK(i < n, "a piece that is not there")) seen[i] = 1;
    }
    for (int64_t i = 0; i < n; i++) CHECK(seen[i], "piece %ld does not come", (long)i);
    free(seen), free(b.block);
    o.task->data.close(&o.c);
}

TEST(held_out_text_that_is_shorter_than_a_piece_is_one_shorter_piece)
{
    Opened o;
    if (!opens(&o, &gx_span_corruption, "text.txt", 60, 40, 0.05)) return;
    const GxSentences *s = &o.c.file.sentences;
    const int64_t first = o.c.file.train_tokens, n = s->begin[s->document[s->documents]] - first;
    CHECK(n > 1 && n < o.c.spans.tokens && o.c.held_out.n == 1, "%ld pieces of %ld tokens", (long)o.c.held_out.n,
          (long)n);
    if (o.c.held_out.n == 1)
        CHECK(o.c.held_out.begin[0] == first && o.c.held_out.tokens[0] == n &&
                  o.c.held_out.length[GX_OF_SOURCE][0] == gx_span_source(gx_span_counts(n, 0.15, 3)) + 2,
              "tokens %ld to %ld", (long)o.c.held_out.begin[0], (long)o.c.held_out.tokens[0]);
    o.task->data.close(&o.c);
}

// A tokenizer as T5 has it: sentinels at the vocabulary's end, special; or, as in mT5's, not special, with a \u2581
// before.
static void write_unigram(const char *name, const char *before, const char *special)
{
    char text[3000], more[300];
    snprintf(text, sizeof text, "{\"version\":\"1.0\",\"added_tokens\":[");
    for (int i = 0; i < 3 + 8; i++) {
        static const char *const names[] = {"<pad>", "</s>", "<unk>"};
        char extra[40];
        if (i >= 3 && !*special) break;
        snprintf(extra, sizeof extra, "<extra_id_%d>", 10 - i);
        snprintf(more, sizeof more,
                 "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                 "\"normalized\":false,\"special\":true}",
                 i ? "," : "", i < 3 ? i : 5 + i, i < 3 ? names[i] : extra);
        strcat(text, more);
    }
    strcat(text,
           "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\","
           "\"prepend_scheme\":\"always\",\"split\":true},\"post_processor\":null,\"decoder\":{\"type\":"
           "\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"always\",\"split\":true},\"model\":{"
           "\"type\":\"Unigram\",\"unk_id\":2,\"vocab\":[[\"<pad>\",0],[\"</s>\",0],[\"<unk>\",0],[\"\u2581\",-2],"
           "[\"a\",-3],[\"b\",-3],[\"c\",-3],[\"\u2581a\",-4]");
    for (int i = 7; i >= 0; i--) snprintf(more, sizeof more, ",[\"%s<extra_id_%d>\",0]", before, i), strcat(text, more);
    strcat(text, "]}}");
    CHECK(mkdir(path_of(name), 0777) == 0, "no folder");
    char file[60];
    snprintf(file, sizeof file, "%s/tokenizer.json", name);
    write_file(file, text);
}

// T5 has no token before a text, and its own sentinels: extra_id_i is the i-th from the vocabulary's end.
TEST(sources_and_targets_of_t5_have_its_sentinels_and_its_frame)
{
    enum { S = 9, T = 6, LAST = 15 };
    static const GxTextFrame t5 = {-1, 1, 0, 0, 0, 0, 0, {0, 0}};
    static const char *const names[] = {"t5", "mt5"};
    if (!gx_regex_is_built() || !gx_unicode_has_nfd()) SKIP("built without PCRE2 or utf8proc");
    write_unigram("t5", "", "special"), write_unigram("mt5", "\u2581", "");
    write_file("letters.txt", "abcabca aab\nbbca cab\n\nacbabcacba abcba\n");
    for (int k = 0; k < 2; k++) {
        Opened o;
        Batch b;
        int32_t source[S], target[T + 2], back[40];
        if (!CHECK(opens_with(&o, &gx_span_corruption, names[k], &t5, "letters.txt", S, T, 0), "%s", o.g.error.message))
            return;
        const int64_t L = o.c.spans.tokens; // 9 of 9: one is missing, one is the sentinel, one </s>
        CHECK(L == 8 && o.c.spans.noise == 1 && o.c.train.n == o.c.file.sentences.tokens / 8, "texts of %ld", (long)L);
        lay(&b, &o, 1);
        fill(&b, &o, 0, 3);
        const int64_t m = text_of(&b, 0, GX_OF_SOURCE, 0, source), n = text_of(&b, 0, GX_OF_TARGET, 0, target);
        CHECK(m == S && source[S - 1] == 1 && source[S - 2] == LAST && n == 3 && target[0] == LAST && target[2] == 1,
              "a source of %ld, a target of %ld", (long)m, (long)n);
        CHECK(undo(source, m - 1, target, n - 1, 8, back) == L && b.b.tokens[0] == 0, "it cannot be undone");
        free(b.block);
        o.task->data.close(&o.c);
        write_file("sentinel.txt", "abc\n\nab <extra_id_0> c\n");
        CHECK(!opens_with(&o, &gx_span_corruption, names[k], &t5, "sentinel.txt", 8, 4, 0) &&
                  strstr(o.g.error.message, "sentence 2 has the token ") &&
                  strstr(o.g.error.message, k ? "; take it out" : "<extra_id_0>, which stands for") &&
                  strstr(o.g.error.message, k ? "\u2581<extra_id_0>" : "; --split_special_tokens true"),
              "%s", o.g.error.message);
        o.task->data.close(&o.c);
    }
}

// Also where the end of a line, or a byte order mark, would be a token; <s>, <pad>, </s> and <mask> are BART's.
TEST(texts_of_bart_have_its_frame_and_no_ends_of_lines)
{
    static const GxTextFrame bart = {0, 2, 1, 2, 2, 0, 0, {0, 0}};
    static const char *const lines[] = {"the cat sat.", "it ran."};
    Opened o;
    if (!gx_regex_is_built()) SKIP("built without PCRE2");
    CHECK(mkdir(path_of("bart"), 0777) == 0, "no folder");
    char *json = read_file("data/ref/bpe/roberta.json");
    write_file("bart/tokenizer.json", json), free(json);
    write_file("lines.txt", "\xEF\xBB\xBFthe cat sat.\r\nit ran.\n\n  \nit ran.");
    if (!CHECK(opens_with(&o, &gx_denoising, "bart", &bart, "lines.txt", 0, 40, 0), "%s", o.g.error.message)) return;
    const GxSentences *s = &o.c.file.sentences;
    CHECK(s->sentences == 3 && s->documents == 2 && o.c.infilling.mask == gx_tokenizer_find(&o.c.tokenizer, "<mask>"),
          "%ld sentences in %ld documents", (long)s->sentences, (long)s->documents);
    for (int i = 0; i < 2; i++) {
        int64_t bytes;
        char *text =
            gx_show_decode(&o.c.tokenizer, s->token + s->begin[i], gx_sentences_length(s, i, 1), &bytes, &o.g.error);
        CHECK(text && !strcmp(text, lines[i]), "\"%s\", expected \"%s\"", text, lines[i]);
        free(text);
    }
    char room[8];
    CHECK(!strcmp(gx_tokenizer_piece(&o.c.tokenizer, o.c.infilling.full_stop, room), "."), "the full stop");
    o.task->data.close(&o.c);
}

TEST(samples_do_not_depend_on_micro_batches_and_differ_by_seed_and_epoch)
{
    const GxTask *const tasks[] = {&gx_denoising, &gx_span_corruption};
    for (int k = 0; k < 2; k++) {
        Opened o;
        Batch four, one;
        int32_t a[2][40], b[2][40];
        int same_seed = 0, same_epoch = 0, columns = 0;
        if (!opens(&o, tasks[k], "text.txt", 16, 30, 0.2)) return;
        lay(&four, &o, 4), lay(&one, &o, 1);
        for (int64_t s = 0; s < 24; s += 4) {
            fill(&four, &o, s, 5);
            for (int64_t c = 0; c < 4; c++, columns++) {
                fill(&one, &o, s + 3 - c, 5); // back, too
                for (int which = 0; which < 2; which++) {
                    const int64_t n = text_of(&four, 3 - c, which, 0, a[which]),
                                  m = text_of(&one, 0, which, 0, b[which]);
                    same_ids("a sample", b[which], m, a[which], n);
                }
                fill(&one, &o, s + 3 - c, 6);
                int64_t n = text_of(&four, 3 - c, 0, 0, a[0]), m = text_of(&one, 0, 0, 0, b[0]);
                same_seed += n == m && !memcmp(a[0], b[0], (size_t)n * 4);
                fill(&one, &o, s + 3 - c + 1000, 5);
                m = text_of(&one, 0, 0, 0, b[0]);
                same_epoch += n == m && !memcmp(a[0], b[0], (size_t)n * 4);
            }
        }
        CHECK(same_seed <= 1 && same_epoch <= 1, "%d and %d of %d are the same", same_seed, same_epoch, columns);
        free(four.block), free(one.block);
        o.task->data.close(&o.c);
    }
}

TEST(held_out_texts_are_damaged_in_the_same_way_each_time)
{
    const GxTask *const tasks[] = {&gx_denoising, &gx_span_corruption};
    for (int k = 0; k < 2; k++) {
        Opened o;
        Batch b, other;
        if (!opens(&o, tasks[k], "text.txt", 16, 30, 0.3)) return;
        const int64_t n = o.task->batch.held_out(&o.c);
        lay(&b, &o, 3), lay(&other, &o, 3);
        b.b.sample = other.b.sample = 1;
        CHECK(n >= 3, "%ld samples are held out", (long)n);
        o.task->batch.fill_held_out(&o.g, &o.c, &b.b, b.block, n, &o.g.error);
        fill(&other, &o, 7, 99); // a step of training
        other.b.sample = 1;
        o.task->batch.fill_held_out(&o.g, &o.c, &other.b, other.block, n, &o.g.error);
        CHECK(b.b.target[0].n == other.b.target[0].n && !memcmp(b.block, other.block, (size_t)b.bytes), "task %d", k);
        CHECK(b.b.target[0].right == &o.c.right, "nobody counts what is right");
        o.task->batch.fill_held_out(&o.g, &o.c, &b.b, b.block, 2, &o.g.error);
        for (int64_t i = 0; i < b.b.target[0].n; i++) CHECK(b.b.target[0].rows[i] % 3 == 0, "sample 2 counts");
        CHECK(b.b.target[0].n > 0, "sample 1 does not count");
        free(b.block), free(other.block);
        o.task->data.close(&o.c);
    }
}

// ---- runs ----------------------------------------------------------------------------------------------------------

#define IDS "--bos_token_id 2 --eos_token_id 3 --pad_token_id 0 --decoder_start_token_id 3 "
static int run(const char *name, const char *task, const char *more)
{
    static const char sizes[] = IDS "--d_model 32 --encoder_layers 1 --decoder_layers 1 --encoder_attention_heads 2 "
                                    "--decoder_attention_heads 2 --encoder_ffn_dim 48 --decoder_ffn_dim 48 "
                                    "--max_position_embeddings 40";
    char line[3000];
    snprintf(
        line, sizeof line,
        "--task %s --train_data %s/text.txt --tokenizer %s/tokens --validation_fraction 0.2 --seq_len 30 "
        "--micro_batch_size 4 --eval_steps 0 --sample_lines 0 --max_steps 4 --learning_rate 0.003 --output_dir %s/%s "
        "%s %s",
        task, folder, folder, folder, name, strstr(more, "--model ") || strstr(more, "--resume ") ? "" : sizes, more);
    return run_line(&gx_bart, &gx_seq2seq, line);
}
#define SPANS "--max_source_length 24 --seq_len 8 "

static void refused(const char *task, const char *more, const char *words)
{
    const int status = run("refused", task, more);
    CHECK(status != 0 && strstr(said.log, words), "%s: %d \"%s\", expected \"%s\"", more, status, said.log, words);
}

TEST(both_tasks_are_learned)
{
    CHECK(run("denoised", "denoising", "--max_steps 39 --micro_batch_size 8 --learning_rate 0.01 --dropout 0") == 0,
          "%s", said.log);
    CHECK(told.window[39] < 0.75 * told.window[1] && metric("loss") < told.window[1], "loss %g, then %g, validation %g",
          told.window[1], told.window[39], metric("loss"));
    CHECK(run("spans", "span_corruption",
              SPANS "--max_steps 39 --micro_batch_size 8 --learning_rate 0.01 --dropout 0") == 0,
          "%s", said.log);
    CHECK(told.window[39] < 0.75 * told.window[1] && metric("loss") < told.window[1], "loss %g, then %g, validation %g",
          told.window[1], told.window[39], metric("loss"));
    CHECK(!strstr(said.log, "warning"), "%s", said.log);
}

TEST(ranks_modes_and_micro_batches_have_the_losses_of_one_rank)
{
    static const char *const ways[] = {"--ranks 2 --mode tp", "--ranks 2 --mode galaxy",
                                       "--ranks 2 --micro_batch_size 2",
                                       "--micro_batch_size 1 --gradient_accumulation_steps 4"};
    static const char *const tasks[] = {"denoising", "span_corruption"};
    for (int k = 0; k < 2; k++) {
        double one[5], validation;
        char more[300];
        CHECK(run("one", tasks[k], k ? SPANS "--overwrite_output_dir true" : "") == 0, "%s", said.log);
        memcpy(one, told.window, sizeof one), validation = metric("loss");
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            snprintf(more, sizeof more, "%s%s --global_batch_size 4 --overwrite_output_dir true", k ? SPANS : "",
                     ways[i]);
            CHECK(run("several", tasks[k], more) == 0, "%s: %s", ways[i], said.log);
            for (int s = 1; s <= 4; s++) test_close_number(ways[i], told.window[s], one[s], 1e-5);
            test_close_number(ways[i], metric("loss"), validation, 1e-5);
        }
    }
}

TEST(a_resumed_run_ends_with_the_same_bits)
{
    static const char *const tasks[] = {"denoising", "span_corruption"};
    for (int k = 0; k < 2; k++) {
        char more[400], name[2][30], file[2][100];
        int64_t n, m;
        snprintf(name[0], sizeof name[0], "whole-%s", tasks[k]);
        snprintf(name[1], sizeof name[1], "again-%s", tasks[k]);
        snprintf(more, sizeof more, "%s--max_steps 6 --save_steps 3", k ? SPANS : "");
        CHECK(run(name[0], tasks[k], more) == 0, "%s", said.log);
        snprintf(more, sizeof more, "%s--max_steps 6 --resume %s/%s/checkpoint-3", k ? SPANS : "", folder, name[0]);
        CHECK(run(name[1], tasks[k], more) == 0, "%s", said.log);
        CHECK(!strstr(said.log, "was trained"), "%s", said.log);
        for (int i = 0; i < 2; i++) snprintf(file[i], sizeof file[i], "%s/checkpoint-6/model.safetensors", name[i]);
        char *whole = read_bytes(path_of(file[0]), &n), *both = read_bytes(path_of(file[1]), &m);
        CHECK(n > 1000 && n == m && !memcmp(whole, both, (size_t)n), "%s: other weights", tasks[k]);
        free(whole), free(both);
        snprintf(more, sizeof more, "%s--max_steps 7 --resume %s/%s/checkpoint-6 %s", k ? SPANS : "", folder, name[0],
                 k ? "--mean_noise_span_length 4" : "--mlm_probability 0.2");
        CHECK(run(k ? "other-spans" : "other-masks", tasks[k], more) != 0 &&
                  strstr(said.log, k ? "(its mean_noise_span_length differs)" : "(its mlm_probability differs)"),
              "%s", said.log);
    }
}

// What the texts lose is what the model was trained with, where nothing else is said.
TEST(a_model_is_validated_as_it_was_trained)
{
    char more[300];
    CHECK(run("half", "denoising", "--mlm_probability 0.5 --poisson_lambda 2 --permute_sentence_ratio 0") == 0, "%s",
          said.log);
    const double loss = metric("loss"), accuracy = metric("accuracy");
    snprintf(more, sizeof more, "--model %s/half/checkpoint-4 --evaluate", folder);
    CHECK(run("evaluated", "denoising", more) == 0, "%s", said.log);
    test_close_number("loss", metric("loss"), loss, 1e-6);
    CHECK(metric("accuracy") == accuracy, "accuracy %g, then %g", accuracy, metric("accuracy"));
    snprintf(more, sizeof more, "--model %s/half/checkpoint-4 --evaluate --mlm_probability 0.1", folder);
    CHECK(run("evaluated", "denoising", more) == 0 && fabs(metric("loss") - loss) > 1e-4, "loss %g with other masks",
          metric("loss"));
}

TEST(samples_are_shown_before_and_written_after_the_training)
{
    CHECK(run("shown", "denoising", "--show_data 2 --sample_lines 2 --max_steps 1") == 0, "%s", said.log);
    CHECK(strstr(said.out, "sample 0, text 1: a source of ") && strstr(said.out, "sample 1, text 1") &&
              !strstr(said.out, "sample 2,") && strstr(said.out, "  source   [CLS] ") && strstr(said.out, "[MASK]") &&
              strstr(said.out, "  target   [CLS] ") && strstr(said.out, "  written  ") &&
              strstr(said.out, "texts of up to 28 tokens, 0.3 of them masked"),
          "%s", said.out);
    CHECK(run("shown_spans", "span_corruption", SPANS "--show_data 1 --sample_lines 1 --max_steps 1") == 0, "%s",
          said.log);
    CHECK(strstr(said.out, "sample 0, text 1: a source of 24 tokens, a target of 7") &&
              strstr(said.out, "<extra_id_0>") && strstr(said.out, "  written  ") &&
              strstr(said.out, "texts of 25 tokens, of which 4 are missing, in 1 span: sources of 24,"),
          "%s", said.out);
}

TEST(what_does_not_fit_is_refused_with_what_to_do)
{
    write_file("empty.txt", "\n \n\n"), write_file("two.txt", "w1 w2 .\n"), write_file("one.txt", "w1\n\nw2\n");
    write_file("masked.txt", "w1 [MASK] w2 .\n\nw3 .\n");
    refused("denoising", "--tokenizer bytes", "has no mask token (BART's is <mask>");
    refused("denoising", "--mlm_probability 0 --permute_sentence_ratio 0", "are both 0");
    refused("denoising", "--poisson_lambda 0", "poisson_lambda");
    refused("denoising", "--seq_len 3", "needs 4");
    refused("denoising", "--max_source_length 3", "a column of sources has 3 tokens");
    refused("denoising", "--noise_density 0.1", "--task span_corruption");
    refused("span_corruption", "--mlm_probability 0.1", "--task denoising");
    refused("span_corruption", "--tokenizer bytes", "names one that has them, such as T5's");
    refused("span_corruption",
            SPANS "--max_source_length 200 --seq_len 100 --max_position_embeddings 200 "
                  "--mean_noise_span_length 1",
            "has no <extra_id_12>; use a smaller --max_source_length");
    refused("span_corruption", "--max_source_length 24 --seq_len 6", "has 7; use --seq_len 7");
    refused("span_corruption", "--max_source_length 3", "need 4");
    refused("denoising", "--bos_token_id 3", "are both 3");
    refused("denoising", "--eos_token_id 500", "eos_token_id is 500, but the vocabulary ends at 77");
    refused("denoising", "--eos_token_id 8", "sentence 1 has the token \"w2\", whose id 8 is the model's eos_token_id");
    refused("denoising", "--train_data /none.txt", "cannot open /none.txt");
    char more[300];
    static const char *const texts[][3] = {
        {"empty.txt", "", "has no sentence"},
        {"two.txt", "", "has 1 document, so nothing is left to train on"},
        {"masked.txt", "--validation_fraction 0", "sentence 1 has the token [MASK], which stands for what is missing"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(more, sizeof more, "--train_data %s %s", path_of(texts[i][0]), texts[i][1]);
        refused("denoising", more, texts[i][2]);
    }
    snprintf(more, sizeof more, SPANS "--train_data %s --validation_fraction 0.4", path_of("one.txt"));
    refused("span_corruption", more, "part is a single token");
}

int main(int argc, char **argv) { return run_tests(argc, argv, write_texts); }
