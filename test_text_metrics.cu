// test_text_metrics.cu: metrics of written texts against rouge_score and sacrebleu, and stems against NLTK
// (dev/ref/make_text_metrics.py); what no reference says.
#include "galaxy/io/json.h"
#include "galaxy/task/bleu.h"
#include "galaxy/task/chrf.h"
#include "galaxy/task/ngrams.h"
#include "galaxy/task/rouge.h"
#include "galaxy/text/porter_stemmer.h"
#include "test/test.h"

#ifdef GX_WITH_JANSSON
#define NEEDS_JSON
#else
#define NEEDS_JSON SKIP("built without jansson")
#endif

// Calls run for every line of that kind; returns how many there are.
static int each_case(const char *kind, void (*run)(const GxJson *c))
{
    GxError err = GX_ZERO;
    char *text;
    int64_t bytes;
    int cases = 0;
    if (!CHECK(gx_file_read("data/ref/text_metrics.jsonl", 1 << 20, &text, &bytes, &err) == GX_OK, "%s", err.message))
        return 0;
    for (char *line = text, *end; *line && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        GxJson *json;
        if (!CHECK(gx_json_parse(&json, line, end - line, "text_metrics.jsonl", &err) == GX_OK, "%s", err.message))
            break;
        if (!strcmp(gx_json_string(gx_json_get(json, "kind")), kind)) run(json), cases++;
        gx_json_free(json);
    }
    free(text);
    return cases;
}

// ---- stems ---------------------------------------------------------------------------------------------------------

static const char *word_of(const char **list, int64_t *n)
{
    const char *word = *list;
    *n = (int64_t)strcspn(word, " ");
    *list += *n + (word[*n] == ' ');
    return word;
}

static int stems_seen;
static void stems_case(const GxJson *c)
{
    const char *words = gx_json_string(gx_json_get(c, "words")), *stems = gx_json_string(gx_json_get(c, "stems"));
    while (*words) {
        int64_t n, expected;
        const char *word = word_of(&words, &n), *stem = word_of(&stems, &expected);
        char *got = (char *)malloc((size_t)n); // of this size, so that a sanitizer sees what is written behind it
        memcpy(got, word, (size_t)n);
        const int64_t m = gx_porter_stem(got, n);
        CHECK(m == expected && !memcmp(got, stem, (size_t)m), "the stem of %.*s is %.*s, expected %.*s", (int)n, word,
              (int)m, got, (int)expected, stem);
        free(got);
        stems_seen++;
    }
}

TEST(stems_are_those_of_nltk)
{
    NEEDS_JSON;
    each_case("stems", stems_case);
    CHECK(stems_seen > 2000, "%d words were compared", stems_seen);
}

// ---- texts ---------------------------------------------------------------------------------------------------------

// The same formula in fp64, with a few roundings in another order: as test_bound, with the unit roundoff of fp64, for
// a chain of at most 64 of them, on a scale of 100.
static void same(const char *what, const char *key, double score, double expected)
{
    const double bound = 8 * (DBL_EPSILON / 2) * sqrt(64) * 100, ratio = fabs(score - expected) / bound;
    if (ratio > test_state.worst) test_state.worst = ratio;
    CHECK(ratio <= 1, "%s: %s is %.17g, expected %.17g", what, key, score, expected);
}

static const char *text_at(const GxJson *c, const char *key, int64_t i)
{
    return gx_json_string(gx_json_at(gx_json_get(c, key), i));
}

static void rouge_case(const GxJson *c)
{
    GxError err = GX_ZERO;
    const char *what = gx_json_string(gx_json_get(c, "what"));
    for (int64_t i = 0; i < gx_json_size(gx_json_get(c, "written")); i++)
        for (int s = 0; s < 2; s++) {
            GxRouge r = GX_ZERO;
            char key[100];
            if (!CHECK(gx_rouge(text_at(c, "written", i), text_at(c, "target", i), !s, &r, &err) == GX_OK, "%s",
                       err.message))
                return;
            const GxRougeScore of[] = {r.one, r.two, r.l};
            for (int k = 0; k < 9; k++) {
                const GxRougeScore *x = &of[k / 3];
                snprintf(key, sizeof key, "text %ld, %s a stemmer, number %d", (long)i, s ? "without" : "with", k);
                same(what, key,
                     k % 3 == 0   ? x->precision
                     : k % 3 == 1 ? x->recall
                                  : x->f,
                     gx_json_double(gx_json_at(gx_json_at(gx_json_get(c, "rouge"), i), 9 * s + k)));
            }
        }
}

static void corpus_case(const GxJson *c)
{
    GxError err = GX_ZERO;
    GxBleu bleu = GX_ZERO;
    GxChrf chrf = GX_ZERO;
    const char *what = gx_json_string(gx_json_get(c, "what"));
    for (int64_t i = 0; i < gx_json_size(gx_json_get(c, "written")); i++) {
        CHECK(gx_bleu_add(&bleu, text_at(c, "written", i), text_at(c, "target", i), &err) == GX_OK, "%s", err.message);
        CHECK(gx_chrf_add(&chrf, text_at(c, "written", i), text_at(c, "target", i), &err) == GX_OK, "%s", err.message);
    }
    same(what, "bleu", gx_bleu_score(&bleu), gx_json_double(gx_json_get(c, "bleu")));
    same(what, "chrf", gx_chrf_score(&chrf), gx_json_double(gx_json_get(c, "chrf")));
}

TEST(rouge_with_and_without_a_stemmer_is_that_of_rouge_score)
{
    NEEDS_JSON;
    const int cases = each_case("texts", rouge_case);
    CHECK(cases == 28, "%d cases", cases);
}

TEST(bleu_and_chrf_of_corpora_are_those_of_sacrebleu)
{
    NEEDS_JSON;
    const int cases = each_case("texts", corpus_case);
    CHECK(cases == 28, "%d cases", cases);
}

// ---- what no reference says ----------------------------------------------------------------------------------------

TEST(ngrams_of_random_numbers_are_counted_as_by_comparing_each_with_each)
{
    GxError err = GX_ZERO;
    uint64_t random = 7;
    for (int round = 0; round < 200; round++) {
        int32_t id[60];
        GxNgrams count[5];
        const int64_t n = round % 31, m = (round * 7) % 29;
        for (int64_t i = 0; i < n + m; i++)
            id[i] = (int32_t)((random = random * 6364136223846793005u + 1442695040888963407u) >> 60) % (2 + round % 4);
        gx_ngrams_count(id, n, m, 5, count, &err);
        for (int k = 1; k <= 5; k++) {
            int64_t common = 0;
            int used[60] = {0};
            for (int64_t i = 0; i + k <= n; i++)
                for (int64_t j = n; j + k <= n + m; j++) {
                    if (used[j] || memcmp(id + i, id + j, (size_t)k * sizeof *id)) continue;
                    used[j] = 1, common++;
                    break;
                }
            CHECK(count[k - 1].common == common, "%d-grams in common: %ld, expected %ld", k, (long)count[k - 1].common,
                  (long)common);
            CHECK(count[k - 1].of[0] == gx_max(n - k + 1, 0) && count[k - 1].of[1] == gx_max(m - k + 1, 0),
                  "%d-grams: %ld and %ld", k, (long)count[k - 1].of[0], (long)count[k - 1].of[1]);
        }
    }
}

TEST(bytes_that_are_no_text_are_compared_as_characters_that_are_unknown)
{
    GxError err = GX_ZERO;
    GxRouge r = GX_ZERO;
    GxBleu b = GX_ZERO;
    GxChrf c = GX_ZERO;
    const char *broken = "cat \xff\xfe \xe6\x9d";
    gx_rouge(broken, broken, 1, &r, &err);
    gx_bleu_add(&b, broken, broken, &err);
    gx_chrf_add(&c, broken, broken, &err);
    CHECK(gx_error_code(&err) == GX_OK, "%s", err.message);
    CHECK(r.one.f == 1 && r.l.f == 1, "rouge1 %g, rougeL %g", r.one.f, r.l.f);
    CHECK(b.right[0] == 3, "%ld words", (long)b.right[0]);
    CHECK(gx_chrf_score(&c) == 100, "chrF %g", gx_chrf_score(&c));
}

int main(int argc, char **argv) { return test_main(argc, argv); }
