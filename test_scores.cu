// test_scores.cu: scores of predictions against scikit-learn and SciPy (dev/ref/make_scores.py), what they refuse, how
// confusions are shown.
#include "galaxy/io/json.h"
#include "galaxy/run/plot_confusion.h"
#include "galaxy/task/confusion.h"
#include "galaxy/task/scores.h"
#include "test/test.h"
#include <unistd.h>

// ---- against scikit-learn ------------------------------------------------------------------------------------------

typedef struct { // of one line of data/ref/scores.jsonl
    const GxJson *json;
    const char *what;
    int64_t n;    // elements of the first list
    int compared; // scores
} Case;

static int64_t integer_of(const Case *c, const char *key) { return gx_json_int(gx_json_get(c->json, key)); }

// free it. One more than n, so that a list of none is one.
static float *floats_of(Case *c, const char *key)
{
    const GxJson *list = gx_json_get(c->json, key);
    c->n = gx_json_size(list);
    float *x = (float *)malloc((size_t)(c->n + 1) * sizeof *x);
    for (int64_t i = 0; i < c->n; i++) x[i] = (float)gx_json_double(gx_json_at(list, i));
    return x;
}

static unsigned char *bytes_of(Case *c, const char *key)
{
    float *x = floats_of(c, key);
    unsigned char *bytes = (unsigned char *)malloc((size_t)c->n + 1);
    for (int64_t i = 0; i < c->n; i++) bytes[i] = (unsigned char)x[i];
    free(x);
    return bytes;
}

// Of the same formula in fp64, both in [-1, 1]: as test_bound, with the unit roundoff of fp64, for both sides' chains
// of at most 4n + 16 roundings. What is a quotient of integers, or counts, meets it easily.
static void same(Case *c, const char *key, double score)
{
    const GxJson *value = gx_json_get(c->json, key);
    const double bound = 2 * 8 * (DBL_EPSILON / 2) * sqrt(4 * (double)c->n + 16), expected = gx_json_double(value);
    c->compared++;
    if (!CHECK(value != NULL, "%s: no %s in the reference", c->what, key)) return;
    if (gx_json_type(value) == GX_JSON_NULL) {
        CHECK(isnan(score), "%s: %s is %.17g, expected NaN", c->what, key, score);
        return;
    }
    const double ratio = fabs(score - expected) / bound;
    if (ratio > test_state.worst) test_state.worst = ratio;
    CHECK(ratio <= 1, "%s: %s is %.17g, expected %.17g", c->what, key, score, expected);
}

static void classes_case(Case *c, GxError *err)
{
    (void)err;
    const int classes = (int)integer_of(c, "classes");
    int64_t *count = (int64_t *)calloc((size_t)classes * (size_t)classes, sizeof *count);
    float *truth = floats_of(c, "truth"), *prediction = floats_of(c, "prediction");
    for (int64_t i = 0; i < c->n; i++) count[(int)truth[i] * classes + (int)prediction[i]]++;
    CHECK(gx_confusion_records(count, classes) == c->n, "%s", c->what);
    same(c, "accuracy", gx_confusion_accuracy(count, classes));
    same(c, "macro_f1", gx_confusion_macro_f1(count, classes));
    same(c, "matthews", gx_confusion_matthews(count, classes));
    free(count), free(truth), free(prediction);
}

static void several_case(Case *c, GxError *err)
{
    const int labels = (int)integer_of(c, "labels");
    int64_t *count = (int64_t *)calloc((size_t)gx_several_counts(labels), sizeof *count);
    unsigned char *truth = bytes_of(c, "truth");
    float *logits = floats_of(c, "logits");
    for (int64_t i = 0; i < c->n / labels; i++)
        gx_several_count(count, logits + i * labels, truth + i * labels, labels, i, err);
    const GxSeveral s = gx_several_scores(count, labels);
    same(c, "exact", s.exact), same(c, "accuracy", s.accuracy);
    same(c, "micro_f1", s.micro_f1), same(c, "macro_f1", s.macro_f1);
    free(count), free(truth), free(logits);
}

static void numbers_case(Case *c, GxError *err)
{
    float *truth = floats_of(c, "truth"), *prediction = floats_of(c, "prediction");
    double pearson = -9, spearman = -9;
    gx_score_pearson(prediction, truth, c->n, &pearson, err);
    gx_score_spearman(prediction, truth, c->n, &spearman, err);
    same(c, "pearson", pearson), same(c, "spearman", spearman);
    free(truth), free(prediction);
}

static void auc_case(Case *c, GxError *err)
{
    unsigned char *truth = bytes_of(c, "truth");
    float *prediction = floats_of(c, "prediction");
    double auc = -9;
    gx_score_auc(prediction, truth, c->n, &auc, err);
    same(c, "auc", auc);
    free(truth), free(prediction);
}

static void ranking_case(Case *c, GxError *err)
{
    float *prediction = floats_of(c, "prediction"), *gain = floats_of(c, "gain");
    GxRanking r = GX_ZERO;
    gx_score_ranking(prediction, gain, c->n, integer_of(c, "k"), &r, err);
    same(c, "mrr", r.mrr), same(c, "ndcg", r.ndcg), same(c, "recall", r.recall);
    free(prediction), free(gain);
}

static void cosine_case(Case *c, GxError *err)
{
    const int64_t width = integer_of(c, "width");
    float *candidate = floats_of(c, "candidate");
    const int64_t m = c->n / width;
    float *anchor = floats_of(c, "anchor");
    const int64_t n = c->n / width;
    int64_t *rank = (int64_t *)calloc((size_t)n, sizeof *rank), *other = (int64_t *)calloc((size_t)n, sizeof *other);
    const GxCosines x = {anchor, candidate, n, m, width, NULL};
    gx_rank_by_cosine(&x, 1, rank, err);
    gx_rank_by_cosine(&x, 3, other, err);
    for (int64_t i = 0; i < n; i++) {
        const int64_t expected = gx_json_int(gx_json_at(gx_json_get(c->json, "rank"), i));
        CHECK(rank[i] == expected, "%s: rank %ld of %ld, expected %ld", c->what, (long)rank[i], (long)i,
              (long)expected);
        CHECK(rank[i] == other[i], "%s: 3 threads say %ld", c->what, (long)other[i]);
    }
    const GxRanking r = gx_ranking_of_ranks(rank, n, integer_of(c, "k"));
    same(c, "mrr", r.mrr), same(c, "ndcg", r.ndcg), same(c, "recall", r.recall);
    free(anchor), free(candidate), free(rank), free(other);
}

// Every line of that kind. expected: scores that are compared, so that none is left out unseen.
static void each_case(const char *kind, void (*run)(Case *c, GxError *err), int expected)
{
    GxError err = GX_ZERO;
    char *text;
    int64_t bytes;
    int compared = 0;
    if (!CHECK(gx_file_read("data/ref/scores.jsonl", 1 << 20, &text, &bytes, &err) == GX_OK, "%s", err.message)) return;
    for (char *line = text, *end; *line && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        GxJson *json;
        if (!CHECK(gx_json_parse(&json, line, end - line, "scores.jsonl", &err) == GX_OK, "%s", err.message)) break;
        Case c = {json, gx_json_string(gx_json_get(json, "what")), 0, 0};
        if (!strcmp(gx_json_string(gx_json_get(json, "kind")), kind)) run(&c, &err);
        CHECK(gx_error_code(&err) == GX_OK, "%s: %s", c.what, err.message);
        compared += c.compared;
        gx_json_free(json);
    }
    CHECK(compared == expected, "%d scores were compared, expected %d", compared, expected);
    free(text);
}

#ifdef GX_WITH_JANSSON
#define NEEDS_JSON
#else
#define NEEDS_JSON SKIP("built without jansson")
#endif

TEST(accuracy_macro_f1_and_matthews_are_those_of_scikit_learn)
{
    NEEDS_JSON;
    each_case("classes", classes_case, 3 * 22);
}
TEST(scores_of_several_labels_are_those_of_scikit_learn)
{
    NEEDS_JSON;
    each_case("several", several_case, 4 * 9);
}
TEST(pearson_and_spearman_are_those_of_scipy)
{
    NEEDS_JSON;
    each_case("numbers", numbers_case, 2 * 16);
}
TEST(auc_is_that_of_scikit_learn)
{
    NEEDS_JSON;
    each_case("auc", auc_case, 12);
}
TEST(mrr_ndcg_and_recall_are_those_of_scikit_learn)
{
    NEEDS_JSON;
    each_case("ranking", ranking_case, 3 * 21);
}
TEST(ranks_by_cosine_are_those_of_scikit_learn)
{
    NEEDS_JSON;
    each_case("cosine", cosine_case, 3 * 6);
}

// ---- what they refuse, and what no reference says ------------------------------------------------------------------

static void refused(GxError *err, GxStatus status, const char *part)
{
    CHECK(status == GX_ERR_ARGUMENT && strstr(err->message, part), "%s: \"%s\" does not hold \"%s\"",
          gx_status_name(status), err->message, part);
    gx_error_clear(err);
}

TEST(predictions_that_are_no_numbers_are_refused)
{
    static const float bad[2] = {NAN, INFINITY};
    static const unsigned char yes[4] = {1, 0, 1, 0};
    for (int k = 0; k < 2; k++) {
        GxError err = GX_ZERO;
        const float good[4] = {1, 2, 3, 4}, wrong[4] = {1, 2, bad[k], 4};
        double score;
        int class_;
        int64_t count[14] = {0}, rank[2];
        GxRanking r;
        refused(&err, gx_argmax(wrong, 4, 7, &class_, &err),
                k ? "class 2 for record 7 is inf" : "class 2 for record 7 is");
        refused(&err, gx_several_count(count, wrong, yes, 4, 7, &err), "label 2 for record 7 is");
        for (int i = 0; i < 14; i++) CHECK(count[i] == 0, "it was counted");
        refused(&err, gx_score_pearson(wrong, good, 4, &score, &err), "the prediction of record 2 is");
        refused(&err, gx_score_spearman(good, wrong, 4, &score, &err), "the truth of record 2 is");
        refused(&err, gx_score_auc(wrong, yes, 4, &score, &err), "the prediction of record 2 is");
        refused(&err, gx_score_ranking(wrong, good, 4, 2, &r, &err), "the prediction of record 2 is");
        const GxCosines x[] = {{wrong, good, 2, 2, 2, NULL}, {good, wrong, 2, 2, 2, NULL}, {good, good, 2, 1, 2, NULL}};
        refused(&err, gx_rank_by_cosine(&x[0], 1, rank, &err), "of the anchor of record 1 is");
        refused(&err, gx_rank_by_cosine(&x[1], 1, rank, &err), "of the candidate of record 1 is");
        refused(&err, gx_rank_by_cosine(&x[2], 1, rank, &err), "2 anchors and 1 candidates");
    }
}

TEST(no_correlation_is_above_one)
{
    float x[100], y[100];
    for (int n = 3; n <= 100; n++) {
        GxError err = GX_ZERO;
        double up = 9, down = 9;
        for (int i = 0; i < n; i++) x[i] = (float)sqrt(i + 1), y[i] = -x[i];
        gx_score_pearson(x, x, n, &up, &err), gx_score_pearson(x, y, n, &down, &err);
        CHECK(up <= 1 && up > 0.999 && down >= -1 && down < -0.999, "%d: %.17g %.17g", n, up, down);
    }
}

TEST(the_first_of_equal_logits_wins)
{
    static const float logits[5] = {-3, 2, 1, 2, -9};
    GxError err = GX_ZERO;
    int class_ = -1;
    CHECK(gx_argmax(logits, 5, 0, &class_, &err) == GX_OK && class_ == 1, "%d", class_);
    CHECK(gx_argmax(logits + 4, 1, 0, &class_, &err) == GX_OK && class_ == 0, "%d", class_);
}

TEST(without_records_there_is_no_score)
{
    const int64_t count[11] = {0};
    const GxSeveral s = gx_several_scores(count, 3);
    CHECK(isnan(gx_confusion_accuracy(count, 3)) && isnan(gx_confusion_macro_f1(count, 3)) &&
              isnan(gx_confusion_matthews(count, 3)),
          "a score of nothing");
    CHECK(isnan(s.exact) && isnan(s.accuracy) && isnan(s.micro_f1) && isnan(s.macro_f1), "a score of nothing");
}

TEST(counts_of_ranks_can_be_added)
{
    enum { LABELS = 3, COUNTS = 3 * LABELS + 2 };
    static const float logits[4][LABELS] = {{1, -1, 1}, {-1, -1, 1}, {1, 1, 1}, {-1, 1, -1}};
    static const unsigned char truth[4][LABELS] = {{1, 0, 0}, {0, 0, 1}, {1, 0, 1}, {1, 1, 0}};
    static const int64_t expected[COUNTS] = {2, 0, 1, 1, 1, 0, 2, 1, 0, 1, 4}; // hits, false alarms, misses; right, all
    int64_t part[2][COUNTS] = {{0}, {0}};
    GxError err = GX_ZERO;
    for (int i = 0; i < 4; i++) gx_several_count(part[i % 2], logits[i], truth[i], LABELS, i, &err);
    for (int i = 0; i < COUNTS; i++)
        CHECK(part[0][i] + part[1][i] == expected[i], "count %d: %ld, expected %ld", i, (long)(part[0][i] + part[1][i]),
              (long)expected[i]);
}

TEST(candidates_of_the_same_text_are_no_rivals)
{
    static const float anchor[] = {1, 0, 0, 1}, candidate[] = {1, 0, 1, 1, 1, 0, 0, 1};
    static const int64_t same_text[] = {5, 6, 5, 7};
    GxCosines x = {anchor, candidate, 2, 4, 2, NULL};
    const double half = sqrt(0.5); // cosines: 1, half, 1, 0 of the first anchor; 0, half, 0, 1 of the second
    int64_t rank[2];
    double loss[2];
    GxError err = GX_ZERO;
    CHECK(gx_rank_and_loss_by_cosine(&x, 20, 1, rank, loss, &err) == GX_OK, "%s", err.message);
    CHECK(rank[0] == 2 && rank[1] == 2, "%ld %ld", (long)rank[0], (long)rank[1]);
    CHECK(fabs(loss[0] - log(2 + exp(20 * half - 20) + exp(-20))) < 1e-12 &&
              fabs(loss[1] - log(1 + 2 * exp(-20 * half) + exp(20 - 20 * half))) < 1e-12,
          "%g %g", loss[0], loss[1]);
    x.same = same_text;
    CHECK(gx_rank_and_loss_by_cosine(&x, 20, 1, rank, loss, &err) == GX_OK, "%s", err.message);
    CHECK(rank[0] == 1 && rank[1] == 2, "%ld %ld", (long)rank[0], (long)rank[1]);
    CHECK(fabs(loss[0] - log(1 + exp(20 * half - 20) + exp(-20))) < 1e-12, "%g", loss[0]);
}

// Of vectors of any lengths; one of zeros has the cosine 0 with all.
TEST(the_loss_of_a_ranking_is_that_of_cosines)
{
    static const float anchor[] = {3, 0, 0, 0}, candidate[] = {0, 5, 2, 0};
    const GxCosines x = {anchor, candidate, 2, 2, 2, NULL};
    int64_t rank[2];
    double loss[2];
    GxError err = GX_ZERO;
    CHECK(gx_rank_and_loss_by_cosine(&x, 20, 1, rank, loss, &err) == GX_OK, "%s", err.message);
    CHECK(fabs(loss[0] - log1p(exp(20))) < 1e-12 && fabs(loss[1] - log(2)) < 1e-12, "%g %g", loss[0], loss[1]);
}

// ---- confusions for people -----------------------------------------------------------------------------------------

static void line_is(const int64_t *count, int classes, const char *const *name, int k, const char *expected)
{
    char line[GX_CONFUSION_LINE] = "";
    const int is = gx_confusion_line(line, sizeof line, count, classes, name, k);
    CHECK(is == (expected != NULL) && (!expected || !strcmp(line, expected)), "line %d: \"%s\"", k, line);
    CHECK(gx_text_columns(line, (int64_t)strlen(line)) <= 80, "line %d is wider than 80 columns: %s", k, line);
}

TEST(a_small_matrix_is_shown_whole)
{
    static const char *const name[] = {"good",
                                       "b\xC3\xA4"
                                       "d",
                                       "neither of the two"};
    static const int64_t count[] = {12, 0, 3, 100000, 4, 5, 0, 0, 0};
    line_is(count, 3, name, 0,
            "truth ↓ as →    good     b\xC3\xA4"
            "d neithe…");
    line_is(count, 3, name, 1, "good              12       0       3");
    line_is(count, 3, name, 2,
            "b\xC3\xA4"
            "d           100000       4       5");
    line_is(count, 3, name, 3, "neither of …       0       0       0");
    line_is(count, 3, name, 4, NULL);
}

TEST(of_a_large_matrix_the_most_frequent_confusions_are_shown)
{
    enum { N = 9 };
    static const char *const name[N] = {
        "a", "b", "c", "d", "e", "f", "g", "h", "\xE2\x82\xAC a name that is longer than there is room for"};
    int64_t count[N * N] = {0};
    for (int i = 0; i < N; i++) count[i * N + i] = 100;
    count[0 * N + 1] = 5, count[1 * N + 0] = 7, count[3 * N + 8] = 5, count[8 * N + 2] = 1;
    line_is(count, N, name, 0, "7 of 107 b were classified as a");
    line_is(count, N, name, 1, "5 of 105 a were classified as b");
    line_is(count, N, name, 2, "5 of 105 d were classified as \xE2\x82\xAC a name that is longer th…");
    line_is(count, N, name, 3, "1 of 101 \xE2\x82\xAC a name that is longer th… were classified as c");
    line_is(count, N, name, 4, NULL);
    for (int i = 0; i < N * N; i++) count[i] = 1;
    line_is(count, N, name, 9, "1 of 9 b were classified as c");
    line_is(count, N, name, 10, NULL);
}

static char *drawn(const int64_t *count, int classes, const char *const *name, const char *title) // free it
{
    char path[GX_PATH], *text = NULL;
    const char *parent = getenv("TMPDIR");
    int64_t bytes;
    GxError err = GX_ZERO;
    snprintf(path, sizeof path, "%.500s/test_scores.%ld.svg", parent && parent[0] ? parent : "/tmp", (long)getpid());
    CHECK(gx_plot_confusion(count, classes, name, path, title, &err) == GX_OK &&
              gx_file_read(path, 1 << 24, &text, &bytes, &err) == GX_OK,
          "%s", err.message);
    unlink(path);
    return text;
}

static int times(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p++) n++;
    return n;
}

static void has(const char *svg, const char *part, int expected)
{
    CHECK(times(svg, part) == expected, "\"%s\" is there %d times, expected %d", part, times(svg, part), expected);
}

TEST(a_picture_of_confusions_has_names_counts_and_no_foreign_markup)
{
    static const char *const name[] = {"a & b", "<c>"};
    static const int64_t count[] = {75, 25, 0, 4321};
    char *svg = drawn(count, 2, name, "x < y");
    if (!svg) return;
    has(svg, "x &lt; y", 1), has(svg, "a &amp; b<", 2), has(svg, "&lt;c>", 2), has(svg, "<c>", 0), has(svg, "& ", 0);
    has(svg, "<rect x", 4), has(svg, ">75<", 1), has(svg, ">25<", 1), has(svg, ">0<", 1), has(svg, ">4321<", 1);
    has(svg, "fill=\"#3366aa\"", 1); // all of a row is right: the full colour
    has(svg, "fill=\"#eeb391\"", 1); // a quarter of it is wrong: half of the colour
    CHECK(strstr(svg, ">75<") < strstr(svg, ">25<") && strstr(svg, ">25<") < strstr(svg, ">4321<"), "not in order");
    free(svg);
}

TEST(a_picture_of_many_classes_keeps_its_size)
{
    enum { N = 1000 };
    static const char *name[N];
    int64_t *count = (int64_t *)calloc((size_t)N * N, sizeof *count);
    for (int i = 0; i < N; i++) name[i] = "name", count[(int64_t)i * N + i] = 1;
    char *svg = drawn(count, N, name, "many");
    if (svg) {
        has(svg, "<rect x", N), has(svg, "name", 0);
        CHECK(strstr(svg, "width=\"716\" height=\"742\"") != NULL, "%.200s", svg);
    }
    free(svg), free(count);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
