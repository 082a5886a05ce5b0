// test_tokens.cu: tokens that a vocabulary does not have: lists of them, tokenizers that get them
// (text/tokenizer_add.h), rows of a model for them (run/tensor_load.h), and --add_tokens as users meet it. What
// `tokenizers`, transformers and PEFT make of the same is in data/ref (dev/ref/make_tokens_refs.py).
#define BASE "--model base/checkpoint-8 "
#include "test/tuned_runs.h"
#include "galaxy.h"
#include "test/model.h"

// ---- lists ----------------------------------------------------------------------------------------------------------

static GxStatus read_list(GxNewTokens *list, const char *text, int64_t bytes, const char *path, GxError *e)
{
    const GxStatus status = gx_new_tokens_read(list, text, bytes, path, e);
    if (status != GX_OK) gx_new_tokens_close(list);
    return status;
}

TEST(a_list_of_tokens_is_read_in_each_of_its_forms)
{
    static const char lines[] = "\xEF\xBB\xBF<a>\r\n\n two words \n[INST]\n\"b\"",
                      plain[] = "[\"<a>\", \" two words \", \"[INST]\", \"\\\"b\\\"\"]",
                      objects[] =
                          "[{\"content\": \"<a>\"}, {\"content\": \"<b>\", \"special\": true, \"lstrip\": true}, "
                          "{\"content\": \"c\", \"rstrip\": true, \"normalized\": false, \"single_word\": false},"
                          " {\"content\": \"d\", \"special\": true, \"normalized\": true, \"id\": 12}]",
                      ids[] = "{\"second\": 11, \"first\": 10}";
    static const char *const words[] = {"<a>", " two words ", "[INST]", "\"b\""};
    GxNewTokens list;
    GxError e = GX_ZERO;
    for (int k = 0; k < 2; k++) {
        if (!CHECK(read_list(&list, k ? plain : lines, (int64_t)strlen(k ? plain : lines), k ? "a.json" : "a.txt",
                             &e) == GX_OK,
                   "%s", e.message))
            return;
        CHECK(list.n == 4, "%ld tokens", (long)list.n);
        for (int i = 0; i < 4 && i < list.n; i++) {
            const GxNewToken *t = &list.token[i];
            CHECK(!strcmp(t->content, words[i]), "token %d is %s", i, t->content);
            CHECK(!t->special && t->normalized && !t->lstrip && !t->rstrip && t->id == -1, "as no added token is");
        }
        gx_new_tokens_close(&list);
    }
    if (!CHECK(read_list(&list, objects, (int64_t)strlen(objects), "a.JSON", &e) == GX_OK, "%s", e.message)) return;
    static const int flags[4][5] = {{0, 1, 0, 0, -1}, {1, 0, 1, 0, -1}, {0, 0, 0, 1, -1}, {1, 1, 0, 0, 12}};
    for (int i = 0; i < 4; i++) {
        const GxNewToken *t = &list.token[i];
        const int found[5] = {t->special, t->normalized, t->lstrip, t->rstrip, (int)t->id};
        for (int k = 0; k < 5; k++) CHECK(found[k] == flags[i][k], "token %d: member %d is %d", i, k, found[k]);
    }
    gx_new_tokens_close(&list);
    if (!CHECK(read_list(&list, ids, (int64_t)strlen(ids), "a.json", &e) == GX_OK, "%s", e.message)) return;
    CHECK(list.n == 2 && !strcmp(list.token[0].content, "first") && list.token[0].id == 10 && list.token[1].id == 11,
          "not by their ids");
    gx_new_tokens_close(&list);
}

TEST(a_list_that_is_none_is_refused_by_its_line_or_token)
{
    static const struct {
        const char *path, *text, *words;
        int64_t bytes; // 0: those of the text
    } cases[] = {
        {"a.txt", "", "a.txt has no tokens", 0},
        {"a.txt", "\n\r\n", "has no tokens", 0},
        {"a.json", "[]", "has no tokens", 0},
        {"a.txt", "a\n \t\n", "a.txt, line 2: there is only white space", 0},
        {"a.txt", "a\nb\xFF\n", "line 2: it is not UTF-8 text", 0},
        {"a.txt", "a\nb\0c\n", "line 2: it has a byte of value 0", 6},
        {"a.txt", "[\"a\"]", "a.txt is JSON, but would be read as lines", 0},
        {"a.json", "a\n", "a.json", 0},
        {"a.json", "\"a\"", "is a string; expected a list", 0},
        {"a.json", "[\"a\", 1]", "token 1 is 1; expected a text", 0},
        {"a.json", "[\"a\", \"\"]", "token 1 is empty", 0},
        {"a.json", "[{\"contents\": \"a\"}]", "token 0 has \"contents\"", 0},
        {"a.json", "[{\"special\": true}]", "token 0: \"content\" is missing", 0},
        {"a.json", "[{\"content\": \"a\", \"special\": 1}]", "\"special\"", 0},
        {"a.json", "[{\"content\": \"a\", \"single_word\": true}]", "single_word true, which is not supported", 0},
        {"a.json", "{\"a\": \"b\"}", "\"a\" is a string; an object gives each token its id", 0},
        {"a.json", "{\"a\": -1}", "\"a\" is -1", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GxNewTokens list;
        GxError e = GX_ZERO;
        const int64_t n = cases[i].bytes ? cases[i].bytes : (int64_t)strlen(cases[i].text);
        CHECK(read_list(&list, cases[i].text, n, cases[i].path, &e) != GX_OK, "case %zu was taken", i);
        CHECK(strstr(e.message, cases[i].words), "no \"%s\" in: %s", cases[i].words, e.message);
    }
}

// ---- tokenizers -----------------------------------------------------------------------------------------------------

static char *in_repository(const char *path)
{
    static char full[2 * TEST_PATH];
    snprintf(full, sizeof full, "%s/%s", repository, path);
    return full;
}

// The tokenizer with the tokens of new_tokens/tokens.json. 0: it could not be made, and a check failed.
static int open_with_tokens(GxTokenizer *t, const char *path, GxTokensAdded *said)
{
    GxNewTokens list;
    GxError e = GX_ZERO;
    char *text = read_text(in_repository("data/ref/new_tokens/tokens.json"));
    const int is_read =
        CHECK(read_list(&list, text, (int64_t)strlen(text), "tokens.json", &e) == GX_OK, "%s", e.message);
    free(text);
    if (!is_read) return 0;
    const int is_open = CHECK(gx_tokenizer_open(t, in_repository(path), &e) == GX_OK, "%s", e.message),
              is_added = is_open && CHECK(gx_tokenizer_add(t, &list, said, &e) == GX_OK, "%s", e.message);
    if (is_open && !is_added) gx_tokenizer_close(t);
    gx_new_tokens_close(&list);
    return is_added;
}

static void check_ids(const GxTokenizer *t, const char *text, const GxJson *expected)
{
    int32_t ids[400];
    int64_t n = 0;
    GxError e = GX_ZERO;
    if (!CHECK(gx_tokenizer_most(t, (int64_t)strlen(text)) <= 400, "%s is too long", text)) return;
    CHECK(gx_tokenizer_encode(t, text, (int64_t)strlen(text), GX_SPECIAL_AS_TOKENS, ids, &n, &e) == GX_OK, "%s",
          e.message);
    CHECK(n == gx_json_size(expected), "%s: %ld tokens of %s; expected %ld", t->identity, (long)n, text,
          (long)gx_json_size(expected));
    for (int64_t i = 0; i < n && i < gx_json_size(expected); i++)
        CHECK(ids[i] == gx_json_int(gx_json_at(expected, i)), "%s: token %ld of \"%s\" is %d", t->identity, (long)i,
              text, ids[i]);
}

// `tokenizers` gives tokens that the model does not have their ids in the order of the file.
static void check_order(const char *path, int64_t first)
{
    GxJson *json = NULL;
    GxError e = GX_ZERO;
    if (!CHECK(gx_json_read(&json, path, 1 << 26, &e) == GX_OK, "%s", e.message)) return;
    const GxJson *added = gx_json_get(json, "added_tokens");
    int64_t next = first;
    for (int64_t i = 0; i < gx_json_size(added); i++) {
        const int64_t id = gx_json_int(gx_json_get(gx_json_at(added, i), "id"));
        if (id >= first) {
            CHECK(id == next, "%ld comes before %ld", (long)id, (long)next);
            next++;
        }
    }
    CHECK(next == first + 10, "%ld of them", (long)(next - first));
    gx_json_free(json);
}

// Also of the tokenizer as it was written, and opened again.
TEST(texts_with_new_tokens_have_the_ids_that_tokenizers_gives_them)
{
    char *all = read_text(in_repository("data/ref/new_tokens/expected.jsonl")), *line, *rest = all, now[TEST_PATH] = "";
    GxTokenizer t = GX_ZERO, again = GX_ZERO;
    GxTokensAdded said;
    GxError e = GX_ZERO;
    int lines = 0, kinds = 0;
    while ((line = strtok_r(rest, "\n", &rest)) != NULL) {
        GxJson *json = NULL;
        if (!CHECK(gx_json_parse(&json, line, (int64_t)strlen(line), "expected", &e) == GX_OK, "%s", e.message)) break;
        const char *path = gx_json_string(gx_json_get(json, "tokenizer"));
        if (strcmp(path, now)) {
            gx_tokenizer_close(&t), gx_tokenizer_close(&again);
            snprintf(now, sizeof now, "%s", path);
            if (!open_with_tokens(&t, path, &said)) break;
            CHECK(said.added == 10 && said.known == 0 && said.first + 10 == t.vocab_size, "%ld were added",
                  (long)said.added);
            shell("rm -rf written && mkdir written");
            CHECK(gx_tokenizer_write(&t, "written", &e) == GX_OK, "%s", e.message);
            if (!CHECK(gx_tokenizer_open(&again, "written", &e) == GX_OK, "%s", e.message)) break;
            CHECK(!strcmp(t.identity, again.identity), "%s and %s", t.identity, again.identity);
            check_order("written/tokenizer.json", said.first);
            kinds++;
        }
        check_ids(&t, gx_json_string(gx_json_get(json, "text")), gx_json_get(json, "ids"));
        check_ids(&again, gx_json_string(gx_json_get(json, "text")), gx_json_get(json, "ids"));
        gx_json_free(json);
        lines++;
    }
    CHECK(lines == 200 && kinds == 5, "%d texts for %d tokenizers", lines, kinds);
    gx_tokenizer_close(&t), gx_tokenizer_close(&again);
    free(all);
}

static GxStatus add_text(GxTokenizer *t, const char *json, GxTokensAdded *said, GxError *e)
{
    GxNewTokens list;
    GX_TRY(read_list(&list, json, (int64_t)strlen(json), "list.json", e));
    const GxStatus status = gx_tokenizer_add(t, &list, said, e);
    gx_new_tokens_close(&list);
    return status;
}

TEST(what_the_tokenizer_has_already_stays_as_it_is)
{
    GxTokenizer t, before;
    GxTokensAdded said;
    GxError e = GX_ZERO;
    char was[GX_TOKENIZER_IDENTITY], difference[GX_TOKENIZER_DIFFERENCE];
    if (!CHECK(gx_tokenizer_open(&t, in_repository("data/ref/wordpiece/tokenizer.json"), &e) == GX_OK, "%s", e.message))
        return;
    CHECK(gx_tokenizer_open(&before, in_repository("data/ref/wordpiece/tokenizer.json"), &e) == GX_OK, "%s", e.message);
    snprintf(was, sizeof was, "%s", t.identity);
    CHECK(add_text(&t, "[\"[CLS]\", {\"content\": \"the\", \"special\": true}]", &said, &e) == GX_OK, "%s", e.message);
    CHECK(said.added == 0 && said.known == 2 && !strcmp(was, t.identity), "%ld added", (long)said.added);
    CHECK(!gx_tokenizer_extends(&t, &before, difference), "it has no more");
    CHECK(add_text(&t, "[\"the\", \"<n1>\", \"<n2>\", \"<n1>\"]", &said, &e) == GX_OK, "%s", e.message);
    CHECK(said.added == 2 && said.known == 2 && said.first == before.vocab_size, "%ld added, %ld known",
          (long)said.added, (long)said.known);
    CHECK(gx_tokenizer_find(&t, "<n2>") == before.vocab_size + 1, "<n2> has another id");
    CHECK(t.added_from == before.vocab_size && gx_tokenizer_extends(&t, &before, difference), "%s", difference);
    CHECK(!gx_tokenizer_extends(&before, &t, difference) && strstr(difference, "pieces"), "%s", difference);
    // ids that are said
    const long next = t.vocab_size;
    char list[100];
    snprintf(list, sizeof list, "{\"<n4>\": %ld, \"<n3>\": %ld, \"<n1>\": %ld}", next + 1, next, next - 2);
    CHECK(add_text(&t, list, &said, &e) == GX_OK && said.added == 2, "%s", e.message);
    CHECK(gx_tokenizer_find(&t, "<n4>") == next + 1, "<n4> has another id");
    snprintf(was, sizeof was, "%s", t.identity);
    CHECK(add_text(&t, "{\"<n5>\": 7}", &said, &e) != GX_OK && strstr(e.message, "\"<n5>\" is given the id 7"), "%s",
          e.message);
    gx_error_clear(&e);
    CHECK(add_text(&t, "{\"<n1>\": 7}", &said, &e) != GX_OK && strstr(e.message, "the tokenizer has it as"), "%s",
          e.message);
    CHECK(!strcmp(was, t.identity), "after an error it is another one");
    gx_tokenizer_close(&t), gx_tokenizer_close(&before);
}

TEST(another_vocabulary_is_no_extension)
{
    GxTokenizer a, b;
    GxError e = GX_ZERO;
    char difference[GX_TOKENIZER_DIFFERENCE];
    if (!CHECK(gx_tokenizer_open(&a, in_repository("data/ref/bpe/byte_fallback.json"), &e) == GX_OK &&
                   gx_tokenizer_open(&b, in_repository("data/ref/bpe/byte_level.json"), &e) == GX_OK,
               "%s", e.message))
        return;
    CHECK(a.vocab_size > b.vocab_size && !gx_tokenizer_extends(&a, &b, difference), "it is");
    CHECK(strstr(difference, "the id 0 is"), "%s", difference);
    gx_tokenizer_close(&a), gx_tokenizer_close(&b);
}

// A special token that is plain goes into lists of names, too; what else lies in the folder stays.
TEST(files_that_list_added_tokens_get_the_new_ones)
{
    GxTokenizer t;
    GxTokensAdded said;
    GxError e = GX_ZERO;
    shell("mkdir lists && cp %s/data/ref/bpe/byte_level.json lists/tokenizer.json && cd lists && "
          "printf '{\"eos_token\": \"<|end|>\", \"added_tokens_decoder\": {\"0\": {\"content\": \"<|end|>\", "
          "\"special\": "
          "true}}, \"extra_special_tokens\": [\"<|end|>\"], \"model_max_length\": 512}' > tokenizer_config.json && "
          "printf '{\"additional_special_tokens\": []}' > special_tokens_map.json && mkdir ../lists2 && printf "
          "'{\"<|end|>\": 0}' > ../lists2/added_tokens.json",
          repository);
    if (!CHECK(gx_tokenizer_open(&t, "lists", &e) == GX_OK, "%s", e.message)) return;
    const int first = t.vocab_size;
    CHECK(add_text(&t,
                   "[\"<n1>\", {\"content\": \"<n2>\", \"special\": true}, {\"content\": \"<n3>\", \"special\": true, "
                   "\"lstrip\": true}]",
                   &said, &e) == GX_OK,
          "%s", e.message);
    CHECK(gx_tokenizer_write(&t, "lists2", &e) == GX_OK, "%s", e.message);
    gx_tokenizer_close(&t);
    GxJson *config = NULL, *map = NULL, *added = NULL;
    if (!CHECK(gx_json_read(&config, "lists2/tokenizer_config.json", 1 << 20, &e) == GX_OK &&
                   gx_json_read(&map, "lists2/special_tokens_map.json", 1 << 20, &e) == GX_OK &&
                   gx_json_read(&added, "lists2/added_tokens.json", 1 << 20, &e) == GX_OK,
               "%s", e.message))
        return;
    const GxJson *decoder = gx_json_get(config, "added_tokens_decoder");
    for (int i = 0; i < 3; i++) {
        char id[16], name[8];
        snprintf(id, sizeof id, "%d", first + i), snprintf(name, sizeof name, "<n%d>", i + 1);
        const GxJson *token = gx_json_get(decoder, id);
        CHECK(!strcmp(gx_json_string(gx_json_get(token, "content")), name), "added_tokens_decoder lacks %s", name);
        CHECK(gx_json_bool(gx_json_get(token, "special")) == (i > 0) &&
                  gx_json_bool(gx_json_get(token, "lstrip")) == (i == 2) &&
                  gx_json_bool(gx_json_get(token, "normalized")) == (i == 0) && !gx_json_get(token, "id"),
              "%s is another one", name);
        CHECK(gx_json_int(gx_json_get(added, name)) == first + i, "added_tokens.json lacks %s", name);
    }
    CHECK(gx_json_size(decoder) == 4 && gx_json_size(added) == 4, "there is more, or less");
    const GxJson *names[2] = {gx_json_get(config, "extra_special_tokens"),
                              gx_json_get(map, "additional_special_tokens")};
    for (int i = 0; i < 2; i++)
        CHECK(gx_json_size(names[i]) == 2 - i && !strcmp(gx_json_string(gx_json_at(names[i], 1 - i)), "<n2>"),
              "list %d has %ld", i, (long)gx_json_size(names[i]));
    CHECK(gx_json_int(gx_json_get(config, "model_max_length")) == 512, "model_max_length is gone");
    gx_json_free(config), gx_json_free(map), gx_json_free(added);
}

// `tokenizers` would give new tokens other ids.
TEST(a_tokenizer_with_gaps_among_its_ids_gets_no_tokens)
{
    GxTokenizer t;
    GxTokensAdded said;
    GxError e = GX_ZERO;
    shell("mkdir gaps && sed 's/\"id\": *%d/\"id\": 1300/' %s/data/ref/bpe/byte_level.json > gaps/tokenizer.json", 1161,
          repository);
    if (!CHECK(gx_tokenizer_open(&t, "gaps", &e) == GX_OK, "%s", e.message)) return;
    if (t.vocab_size != 1301) SKIP("the file has no added token behind its vocabulary: %d", t.vocab_size);
    CHECK(add_text(&t, "[\"<n1>\"]", &said, &e) == GX_ERR_UNSUPPORTED &&
              strstr(e.message, "no piece for one of its ids"),
          "%s", e.message);
    CHECK(t.vocab_size == 1301, "it has changed");
    gx_tokenizer_close(&t);
}

// ---- rows of a model ------------------------------------------------------------------------------------------------

typedef struct {
    float *v;
    int64_t rows, cols;
} Matrix;
static Matrix read_matrix(const char *checkpoint, const char *name)
{
    char path[TEST_PATH];
    GxSafetensors s;
    GxError e = GX_ZERO;
    Matrix m = {NULL, 0, 1};
    snprintf(path, sizeof path, "%s/%s", checkpoint, weights_of(checkpoint));
    if (!CHECK(gx_safetensors_open(&s, path, &e) == GX_OK, "%s", e.message)) return m;
    const GxSafetensorsEntry *t = gx_safetensors_find(&s, name);
    if (CHECK(t != NULL, "%s has no %s", path, name)) {
        m.rows = t->shape[0], m.cols = t->ndim == 2 ? t->shape[1] : 1;
        m.v = (float *)calloc((size_t)t->elements, sizeof *m.v);
        CHECK(gx_safetensors_read(&s, t, 0, t->elements, m.v, &e) == GX_OK, "%s", e.message);
    }
    gx_safetensors_close(&s);
    return m;
}

// The first rows are the base's, bit for bit, and each of `more` others is their mean; is_zero: they are 0.
static void check_rows(const char *base, const char *grown, const char *prefix, const char *name, int more, int is_zero)
{
    char in_grown[200];
    snprintf(in_grown, sizeof in_grown, "%s%s", prefix, name);
    const Matrix a = read_matrix(base, name), b = read_matrix(grown, in_grown);
    if (!CHECK(a.v && b.v && b.rows == a.rows + more && a.cols == b.cols, "%s: %ld rows, and %ld", name, (long)a.rows,
               (long)b.rows))
        return;
    CHECK(!memcmp(a.v, b.v, (size_t)(a.rows * a.cols) * sizeof *a.v), "%s: old rows have changed", name);
    for (int64_t c = 0; c < a.cols; c++) {
        double mean = 0;
        for (int64_t r = 0; r < a.rows; r++) mean += (double)a.v[r * a.cols + c];
        const float expected = is_zero ? 0 : (float)(mean / (double)a.rows);
        for (int64_t r = a.rows; r < b.rows; r++)
            CHECK(b.v[r * b.cols + c] == expected, "%s: row %ld has %g in column %ld; expected %g", name, (long)r,
                  (double)b.v[r * b.cols + c], (long)c, (double)expected);
    }
    free(a.v), free(b.v);
}

// Logits [T,V] of tokens of the base, on one rank; NULL, and a failed check: there are none.
enum { TEXT = 6 };
static float *logits_of(const char *model, const int32_t *tokens, int64_t *V, double *depth)
{
    static GxContext g;
    static GxInference s;
    GxBatch batch = GX_ZERO;
    float *logits = NULL;
    memset(&g, 0, sizeof g);
    g.device = gx_device_cpu(), g.world = 1;
    if (gx_inference_open(&g, &s, &gx_llama, model, NULL) == GX_OK) {
        *V = gx_model_vocab(&s.model);
        *depth = test_model_depth((const GxLlamaConfig *)s.config, TEXT, 0);
        logits = (float *)calloc((size_t)(TEXT * *V), sizeof *logits);
        batch.tokens = tokens, batch.T = TEXT, batch.B = 1, batch.runs = gx_runs_one(TEXT, 0);
        batch.target[0].logits = gx_rows(logits, GX_F32, TEXT, *V);
        if (gx_inference_load(&g, &s, model, &batch) == GX_OK) gx_inference_run(&g, &s, &batch);
    }
    CHECK(!gx_failed(&g), "%s: %s", model, g.error.message);
    gx_inference_close(&s);
    if (!gx_failed(&g)) return logits;
    free(logits);
    return NULL;
}

#define STILL "--max_steps 1 --learning_rate 0 --max_eval_samples 1 "
#define ADD   "--add_tokens tokens.json "
static int make_tokens(void)
{
    return shell("cp %s tokens.json", in_repository("data/ref/new_tokens/tokens.json")) == 0;
}

// Ten tokens more than the 256 bytes.
TEST(old_texts_keep_their_logits_and_new_tokens_have_the_mean_of_all)
{
    static const int32_t tokens[TEXT] = {104, 32, 255, 0, 97, 13};
    int64_t V[2];
    double depth;
    if (!make_base() || !make_tokens()) return;
    CHECK_RAN(run(BASE ADD STILL "--output_dir grown"));
    CHECK(strstr(err(), "tokens.json: 10 new tokens, with the ids 256 to 265"), "%s", err());
    CHECK(strstr(err(), "rows for new tokens: the model gets 10 in addition to its 256"), "%s", err());
    CHECK(file_contains("grown/checkpoint-1/config.json", "\"vocab_size\": 266"), "config.json has another vocab_size");
    check_whole("grown/checkpoint-1");
    check_rows("base/checkpoint-8", "grown/checkpoint-1", "", "model.embed_tokens.weight", 10, 0);
    check_rows("base/checkpoint-8", "grown/checkpoint-1", "", "lm_head.weight", 10, 0);
    check_rows("base/checkpoint-8", "grown/checkpoint-1", "", "model.layers.1.mlp.up_proj.weight", 0, 0);
    float *a = logits_of("base/checkpoint-8", tokens, &V[0], &depth),
          *b = logits_of("grown/checkpoint-1", tokens, &V[1], &depth);
    if (!CHECK(a && b && V[0] == 256 && V[1] == 266, "%ld and %ld", (long)V[0], (long)V[1])) return;
    for (int t = 0; t < TEXT; t++) {
        double mean = 0, square = 0;
        CHECK(!memcmp(a + t * V[0], b + t * V[1], (size_t)V[0] * sizeof *a), "logits of row %d have changed", t);
        for (int64_t v = 0; v < V[0]; v++) mean += a[t * V[0] + v] / 256.0, square += a[t * V[0] + v] * a[t * V[0] + v];
        // a product of 32 terms, each of a rounded mean; the logits' size is that of their root mean square
        const double most = test_bound(32) * sqrt(square / 256.0);
        for (int64_t v = V[0]; v < V[1]; v++)
            CHECK(fabs(b[t * V[1] + v] - mean) <= most, "logit %ld is %g, and the mean %g", (long)v, b[t * V[1] + v],
                  mean);
    }
    free(a), free(b);
}

// Each with what it can split; a share of the vocabulary has new rows alone. Also of a tied head, whose copy another
// stage has.
TEST(new_rows_are_the_same_whatever_the_ranks)
{
    static const char *const ways[] = {
        "--ranks 2 --mode tp",
        "--ranks 2 --mode tp --tp_vocab_size_list 258,8",
        "--ranks 2 --mode sp",
        "--ranks 2 --pp 2",
        "--ranks 2 --dp_shard 2 --zero 3 --dp_shard_list 3,1",
        "--ranks 4 --pp 2 --tp 2 --mode galaxy",
        "--ranks 2",
    };
    static const char *const kinds[] = {"", "--tie_word_embeddings true"};
    if (!make_tokens()) return;
    for (int k = 0; k < 2; k++) {
        CHECK_RAN(run("--output_dir whole%d --max_steps 1 %s", k, kinds[k]));
        CHECK_RAN(run("--model whole%d/checkpoint-1 " ADD STILL "--output_dir serial%d", k, k));
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i += is_brief() ? 3 : 1) {
            char a[60], b[60];
            CHECK_RAN(run("--model whole%d/checkpoint-1 " ADD STILL "%s --output_dir split%d_%zu", k, ways[i], k, i));
            CHECK(!strstr(err(), "the plan is wrong"), "%s: %s", ways[i], err());
            snprintf(a, sizeof a, "serial%d/checkpoint-1/model.safetensors", k);
            snprintf(b, sizeof b, "split%d_%zu/checkpoint-1/model.safetensors", k, i);
            CHECK(same_file(a, b), "%s %s: other weights", kinds[k], ways[i]);
        }
    }
    check_rows("whole1/checkpoint-1", "serial1/checkpoint-1", "", "model.embed_tokens.weight", 10, 0);
}

// In transformers the bias of a tied head gets zeros, and of another one the mean.
TEST(a_bert_gets_rows_and_a_bias_for_new_tokens)
{
#define WORDS "--config no_sample.json --train_data text.txt --validation_fraction 0 --seq_len 32 "
#define SMALL "--hidden_size 32 --intermediate_size 64 --num_hidden_layers 1 --num_attention_heads 4 --tokenizer words "
    static const char config[] = "{\"threads\": 1, \"logging_steps\": 1, \"micro_batch_size\": 2}",
                      embedding[] = "bert.embeddings.word_embeddings.weight", bias[] = "cls.predictions.bias";
    char train[TEST_PATH];
    GxError e = GX_ZERO;
    gx_file_write("no_sample.json", config, (int64_t)strlen(config), &e);
    snprintf(train, sizeof train, "%s", program);
    if (!make_tokens() || !use_program("train_bert")) return;
    shell("%.*s/tokenize --train text.txt --type wordpiece --vocab_size 300 --output_dir words >/dev/null",
          (int)(strrchr(program, '/') - program), program);
    CHECK_RAN(run(WORDS SMALL "--output_dir bert --max_steps 2 --learning_rate 1e-2"));
    CHECK_RAN(run(WORDS "--model bert/checkpoint-2 " ADD STILL "--output_dir bert1"));
    check_rows("bert/checkpoint-2", "bert1/checkpoint-1", "", embedding, 10, 0);
    check_rows("bert/checkpoint-2", "bert1/checkpoint-1", "", bias, 10, 1);
    // of the same model, untied
    CHECK_RAN(run(WORDS SMALL "--output_dir loose --max_steps 2 --learning_rate 1e-2 --tie_word_embeddings false"));
    CHECK_RAN(run(WORDS "--model loose/checkpoint-2 " ADD STILL "--output_dir loose1 --ranks 2 --mode tp"));
    check_rows("loose/checkpoint-2", "loose1/checkpoint-1", "", "cls.predictions.decoder.weight", 10, 0);
    check_rows("loose/checkpoint-2", "loose1/checkpoint-1", "", "cls.predictions.decoder.bias", 10, 0);
    // of a decoder, which cannot be trained whole, it is said
    CHECK(run(WORDS "--model bert/checkpoint-2 --tuning lora " ADD STILL "--output_dir x") > 0 &&
              strstr(err(), "say --trainable_modules word_embeddings\n"),
          "%s", err());
    CHECK_RAN(run(WORDS "--model bert/checkpoint-2 --tuning lora --trainable_modules word_embeddings " ADD
                        "--output_dir bert2 --max_steps 2 --save_steps 1"));
    CHECK(strstr(err(), "cls.predictions.decoder.weight is not trained, so its rows for new tokens stay"), "%s", err());
    CHECK_RAN(run(WORDS "--resume bert2/checkpoint-1 --output_dir bert3"));
    check_same_checkpoint("bert2/checkpoint-2", "bert3/checkpoint-2");
    snprintf(program, sizeof program, "%s", train);
}

// ---- runs -----------------------------------------------------------------------------------------------------------

TEST(a_run_that_is_resumed_keeps_its_tokens)
{
    static const char *const ways[] = {"", "--tokenizer bytes",
                                       "--tuning lora --trainable_modules embed_tokens,lm_head",
                                       "--tuning lora --trainable_modules embed_tokens,lm_head --quantize nf4"};
    if (!make_base() || !make_tokens()) return;
    for (int i = 0; i < 4; i += is_brief() ? 2 : 1) {
        char whole[60], part[60];
        shell("cp tokens.json gone.json");
        CHECK_RAN(run(BASE "--add_tokens gone.json --output_dir kept%d --max_steps 4 --save_steps 2 %s", i, ways[i]));
        shell("rm gone.json");
        CHECK_RAN(run("--resume kept%d/checkpoint-2 --output_dir on%d", i, i));
        CHECK(!strstr(err(), "new tokens"), "%s", err());
        snprintf(whole, sizeof whole, "kept%d/checkpoint-4", i), snprintf(part, sizeof part, "on%d/checkpoint-4", i);
        check_same_checkpoint(whole, part);
        snprintf(whole, sizeof whole, "kept%d/checkpoint-4/tokenizer.json", i);
        snprintf(part, sizeof part, "on%d/checkpoint-4/tokenizer.json", i);
        CHECK(same_file(whole, part), "another tokenizer");
    }
    CHECK(run("--resume kept0/checkpoint-2 --output_dir on9 --add_tokens tokens.json") > 0 &&
              strstr(err(), "was trained with --add_tokens gone.json, but this command says tokens.json"),
          "%s", err());
}

TEST(an_adapter_has_the_new_rows_and_its_tokenizer_and_is_merged_with_them)
{
    static const char modules[] = "--tuning lora --trainable_modules embed_tokens,lm_head ";
    if (!make_base() || !make_tokens()) return;
    CHECK_RAN(run(BASE ADD "%s" STILL "--output_dir still", modules));
    check_rows("base/checkpoint-8", "still/checkpoint-1", "base_model.model.", "model.embed_tokens.weight", 10, 0);
    check_rows("base/checkpoint-8", "still/checkpoint-1", "base_model.model.", "lm_head.weight", 10, 0);
    CHECK_RAN(run(BASE ADD "%s--max_steps 6 --learning_rate 1e-2 --output_dir lora", modules));
    CHECK(file_contains("lora/checkpoint-6/adapter_config.json", "\"embed_tokens\""), "it does not say the embedding");
    CHECK_RAN(run("--resume lora/checkpoint-6 --evaluate --max_eval_samples 0"));
    const double loss = number_behind(out(), "validation loss ");
    CHECK_RAN(run("--adapter lora/checkpoint-6 --evaluate --max_eval_samples 0"));
    CHECK(strstr(err(), "has rows for 266 tokens, but the model"), "%s", err());
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not %g", out(), loss);
    char *text = written("--adapter lora/checkpoint-6", "--max_new_tokens 8 --json --prompt <q1>");
    CHECK(strstr(text, "\"prompt_tokens\":3") && strstr(text, "\"prompt_tokens\":1"), "%s", text);
    free(text);
    // a folder as peft has it, with a tokenizer and no word of the model's rows
    shell("mkdir as_peft && cp lora/checkpoint-6/adapter_* lora/checkpoint-6/tokenizer* as_peft/");
    CHECK_RAN(run("--adapter as_peft --evaluate --max_eval_samples 0"));
    CHECK(loss == number_behind(out(), "validation loss "), "%s: not %g", out(), loss);
    CHECK(strstr(out(), "bpe-266-"), "%s: not its tokenizer", out());
    CHECK(shell("%.*s/merge_adapter --adapter lora/checkpoint-6 --output_dir merged >/dev/null",
                (int)(strrchr(program, '/') - program), program) == 0,
          "it was not merged");
    CHECK(file_contains("merged/config.json", "\"vocab_size\": 266"), "config.json has another vocab_size");
    CHECK(same_file("merged/tokenizer.json", "lora/checkpoint-6/tokenizer.json"), "another tokenizer");
    CHECK_RAN(run("--model merged --evaluate --max_eval_samples 0"));
    const double merged = number_behind(out(), "validation loss ");
    CHECK(fabs(merged - loss) <= 1e-3, "%g, and %g before it was merged", merged, loss); // of the four digits said
    CHECK(run("--adapter lora/checkpoint-6 --add_tokens more.txt --output_dir x --max_steps 1") > 0, "it was taken");
    shell("echo '<more>' > more.txt");
    CHECK(run("--adapter lora/checkpoint-6 --add_tokens more.txt --output_dir x --max_steps 1") > 0 &&
              strstr(err(), "merge the adapter first"),
          "%s", err());
}

// A model with more rows than its tokenizer has tokens, as Qwen's: they are rows of new tokens, as they are.
TEST(rows_that_a_padded_vocabulary_has_already_stay_as_they_are)
{
    if (!make_tokens()) return;
    CHECK_RAN(run("--output_dir padded --max_steps 2 --vocab_size 300"));
    CHECK_RAN(run("--model padded/checkpoint-2 " ADD STILL "--output_dir padded1"));
    CHECK(strstr(err(), "the model has rows for 10 of them, which stay as they are"), "%s", err());
    CHECK(!strstr(err(), "the model gets"), "%s", err());
    check_rows("padded/checkpoint-2", "padded1/checkpoint-1", "", "model.embed_tokens.weight", 0, 0);
    check_rows("padded/checkpoint-2", "padded1/checkpoint-1", "", "lm_head.weight", 0, 0);
    CHECK_RAN(run("--model padded/checkpoint-2 --tuning lora " ADD STILL "--output_dir padded2"));
    CHECK(strstr(err(), "is not trained, so its rows for new tokens stay what they are; --trainable_modules"), "%s",
          err());
    CHECK_RAN(run("--output_dir little --max_steps 2 --vocab_size 260"));
    CHECK_RAN(run("--model little/checkpoint-2 " ADD STILL "--output_dir little1"));
    CHECK(strstr(err(), "rows for 4") && strstr(err(), "rows for new tokens: the model gets 6 in addition to its 260"),
          "%s", err());
    check_rows("little/checkpoint-2", "little1/checkpoint-1", "", "lm_head.weight", 6, 0);
    CHECK_RAN(run("--model little1/checkpoint-1 " ADD STILL "--output_dir little2"));
    CHECK(strstr(err(), "the tokenizer already has all 10 tokens"), "%s", err());
    check_rows("little1/checkpoint-1", "little2/checkpoint-1", "", "lm_head.weight", 0, 0);
}

TEST(a_tokenizer_that_goes_on_where_the_models_ends_gives_it_rows)
{
    if (!make_base() || !make_tokens()) return;
    CHECK_RAN(run("--add_tokens tokens.json --output_dir fresh --max_steps 1")); // bytes, and no model
    CHECK_RAN(run(BASE ADD STILL "--output_dir list"));
    CHECK_RAN(run(BASE "--tokenizer fresh/checkpoint-1 " STILL "--output_dir goes_on"));
    CHECK(strstr(err(), "the tokenizer's vocabulary is larger by 10 than that of base/checkpoint-8"), "%s", err());
    CHECK(same_file("list/checkpoint-1/model.safetensors", "goes_on/checkpoint-1/model.safetensors"), "other weights");
    CHECK_RAN(run("--resume goes_on/checkpoint-1 --max_steps 2 --output_dir goes_on2"));
    CHECK_RAN(run(BASE ADD "--dry_run"));
    CHECK(strstr(out(), "vocab_size=266") || strstr(out(), "vocab_size 266"), "%s", out());
}

TEST(what_cannot_be_added_is_refused)
{
    static const Refusal cases[] = {
        {BASE "--add_tokens nowhere.txt", {"nowhere.txt"}},
        {BASE "--add_tokens .", {"folder"}},
        {BASE "--add_tokens known.json", {"known.json: \"<q1>\" is given the id 3, but it would get 256"}},
        {BASE "--add_tokens tokens.json --vocab_size 266", {"--vocab_size is 266", "leave out --vocab_size"}},
        {BASE "--add_tokens tokens.json --tuning lora", {"say --trainable_modules embed_tokens,lm_head\n"}},
        {BASE "--add_tokens tokens.json --tuning lora --trainable_modules lm_head",
         {"does not train model.embed_tokens.weight", "say --trainable_modules embed_tokens,lm_head\n"}},
        {BASE "--add_tokens tokens.json --tuning side", {"--tuning side does not train"}},
        {BASE "--tokenizer other", {"nor an extension of it", "--add_tokens FILE"}},
        {"--model more/checkpoint-1 --tokenizer bytes", {"has another tokenizer", "leave out --tokenizer"}},
        {"--model bare --tokenizer more/checkpoint-1", {"no tokenizer of its own to see", "--add_tokens"}},
        {"--vocab_size 200", {"vocab_size is 200", "256 tokens"}},
        {"--add_tokens tokens.json --vocab_size 260", {"has 266 tokens"}},
    };
    if (!make_base() || !make_tokens()) return;
    CHECK_RAN(run(BASE ADD STILL "--output_dir more"));
    shell("mkdir other bare && cp %s other/tokenizer.json && cp base/checkpoint-8/config.json "
          "base/checkpoint-8/model.safetensors bare/ && echo '{\"<q1>\": 3}' > known.json",
          in_repository("data/ref/bpe/byte_level.json"));
    CHECK_REFUSALS(cases);
    CHECK_RAN(run(BASE ADD STILL "--freeze *embed* --output_dir frozen"));
    CHECK(strstr(err(), "model.embed_tokens.weight is not trained") && strstr(err(), "--freeze has frozen it"), "%s",
          err());
}

// ---- peft -----------------------------------------------------------------------------------------------------------

// An adapter of a model whose vocabulary was resized: the embedding and the head are in the file once, and not in
// adapter_config.json, or three times.
static void check_grown(const char *name, int64_t rows)
{
    char path[TEST_PATH], folder_of[100];
    GxSafetensors s;
    GxError e = GX_ZERO;
    int32_t *tokens;
    int64_t V;
    double depth;
    snprintf(folder_of, sizeof folder_of, "data/ref/lora_grown_%s", name); // which names its base from there
    snprintf(path, sizeof path, "%s/ref.safetensors", folder_of);
    if (!CHECK(gx_safetensors_open(&s, path, &e) == GX_OK, "%s", e.message)) return;
    const GxSafetensorsEntry *t = gx_safetensors_find(&s, "tokens"), *l = gx_safetensors_find(&s, "logits");
    tokens = (int32_t *)calloc((size_t)t->elements, sizeof *tokens);
    float *reference = (float *)calloc((size_t)l->elements, sizeof *reference);
    CHECK(t->shape[1] == TEXT && l->shape[2] == rows, "%ld tokens, %ld rows", (long)t->shape[1], (long)l->shape[2]);
    CHECK(gx_safetensors_read_raw(&s, t, 0, t->elements, tokens, &e) == GX_OK &&
              gx_safetensors_read(&s, l, 0, l->elements, reference, &e) == GX_OK,
          "%s", e.message);
    for (int64_t b = 0; b < t->shape[0]; b++) {
        float *logits = logits_of(folder_of, tokens + b * TEXT, &V, &depth);
        if (!CHECK(logits && V == rows, "%ld rows", (long)V)) break;
        test_close_f(name, logits, reference + b * TEXT * V, TEXT * V, test_bound(depth), 0);
        free(logits);
    }
    free(tokens), free(reference);
    gx_safetensors_close(&s);
}

TEST(adapters_of_resized_models_compute_as_in_peft)
{
    char back[TEST_PATH];
    if (!CHECK(getcwd(back, sizeof back) && chdir(repository) == 0, "no way to %s", repository)) return;
    check_grown("plain", 100), check_grown("tied", 65);
    CHECK(chdir(back) == 0, "no way back");
}

TEST(peft_copies_of_one_tensor_that_differ_are_refused)
{
    GxSafetensors s;
    GxError e = GX_ZERO;
    char path[2 * TEST_PATH];
    shell("cp -r %s host_copies && chmod -R u+w host_copies", in_repository("data/ref/lora_grown_tied"));
    snprintf(path, sizeof path, "host_copies/adapter_model.safetensors");
    if (!CHECK(gx_safetensors_open(&s, path, &e) == GX_OK, "%s", e.message)) return;
    const GxSafetensorsEntry *t = gx_safetensors_find(&s, "base_model.model.lm_head.modules_to_save.weight");
    const long at = t ? (long)t->offset : 0;
    gx_safetensors_close(&s);
    if (!CHECK(at > 0, "there is no such tensor")) return;
    shell("printf '\\001' | dd of=%s bs=1 seek=%ld conv=notrunc 2>/dev/null", path, at);
    shell("%.*s/merge_adapter --adapter host_copies --model %s --output_dir x 2> host_copies.txt",
          (int)(strrchr(program, '/') - program), program, in_repository("data/ref/llama_odd"));
    char *said = read_text("host_copies.txt");
    CHECK(strstr(said, "lm_head.modules_to_save.weight, which peft saves as one tensor, but their values differ"), "%s",
          said);
    free(said);
}

int main(int argc, char **argv) { return program_main(argc, argv); }
