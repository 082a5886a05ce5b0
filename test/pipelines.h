// test/pipelines.h: what the tests of tokenizers with pipelines share (test_bpe.cu, test_unigram.cu): small models in
// tokenizer.json, what stands around them in the files of others (pipelines.json), and what Hugging Face's `tokenizers`
// makes of 10,000 strings and of every code point in each (expected.txt), in a folder that a script of dev/ref made.
#ifndef TEST_PIPELINES_H
#define TEST_PIPELINES_H
#include "strings.h"

// ---- what is expected ----------------------------------------------------------------------------------------------

enum { PIPELINES_MOST = 30, POINTS = 4096 };
static struct {
    const char *folder;
    GxJson *pipelines;
    struct {
        char name[40];
        uint64_t hash, pairs;
        int vocab, has_points;
        uint32_t points[0x110000 / POINTS];
    } pipeline[PIPELINES_MOST];
    int n;
} wanted;

static void read_other(const char *line)
{
    unsigned long long hash, pairs;
    unsigned first, points;
    int vocab, at = 0;
    if (sscanf(line, "pipeline %llx %llx %d %n", &hash, &pairs, &vocab, &at) == 3 && at > 0) {
        snprintf(wanted.pipeline[wanted.n].name, sizeof wanted.pipeline->name, "%s", line + at);
        wanted.pipeline[wanted.n].hash = hash, wanted.pipeline[wanted.n].pairs = pairs;
        wanted.pipeline[wanted.n++].vocab = vocab;
    } else if (sscanf(line, "points %x %x", &first, &points) == 2 && first < 0x110000)
        wanted.pipeline[wanted.n - 1].points[first / POINTS] = points, wanted.pipeline[wanted.n - 1].has_points++;
}

static int expect_from(const char *folder) // 0: it cannot be read
{
    GxError err = GX_ZERO;
    char path[GX_PATH];
    if (expected.text[0]) return expected.hashes == STRINGS;
    wanted.folder = folder;
    read_expected(0, "data/ref/wordpiece/expected.txt", 1, NULL);
    snprintf(path, sizeof path, "%s/expected.txt", folder);
    read_expected(1, path, 0, read_other);
    for (int i = 0; i < STRINGS; i++) make_string(i);
    snprintf(path, sizeof path, "%s/pipelines.json", folder);
    CHECK(gx_json_read(&wanted.pipelines, path, 1 << 20, &err) == GX_OK, "%s", err.message);
    return CHECK(expected.hashes == STRINGS && expected.lines > 2000 && expected.traps > 150 && wanted.n > 12 &&
                     gx_json_size(wanted.pipelines) == wanted.n,
                 "%s/expected.txt: %d hashes, %d traps, %d pipelines", folder, expected.hashes, expected.traps,
                 wanted.n);
}

// The base of a pipeline as text, with its replacement; free it.
static char *base_of(const GxJson *pipeline)
{
    char path[GX_PATH];
    const GxJson *pair = gx_json_get(pipeline, "replace");
    snprintf(path, sizeof path, "%s/%.100s.json", wanted.folder, gx_json_string(gx_json_get(pipeline, "base")));
    char *text = get(path);
    if (!pair) return text;
    char *changed = replaced(text, gx_json_string(gx_json_at(pair, 0)), gx_json_string(gx_json_at(pair, 1)));
    free(text);
    return changed;
}

// tokenizer.json of a pipeline, in the temporary folder. `from` is replaced by `to` in it; NULL: nothing is.
static void put_pipeline(const GxJson *pipeline, const char *from, const char *to)
{
    static const char *const members[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    GxError err = GX_ZERO;
    GxJson *root_json = NULL;
    char *text = base_of(pipeline), *whole = NULL;
    int64_t bytes = 0;
    CHECK(gx_json_parse(&root_json, text, (int64_t)strlen(text), "base", &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < 4; i++) {
        const GxJson *member = gx_json_get(pipeline, members[i]);
        gx_json_set(root_json, members[i], member ? gx_json_copy(member) : gx_json_new_null(), &err);
    }
    for (GxJsonMember m = GX_ZERO; gx_json_next(gx_json_get(pipeline, "model"), &m);)
        gx_json_set(gx_json_get(root_json, "model"), m.key, gx_json_copy(m.value), &err);
    CHECK(gx_json_dump(root_json, 0, &whole, &bytes, &err) == GX_OK, "%s", err.message);
    char *changed = from ? replaced(whole, from, to) : NULL;
    put(at("tokenizer.json"), from ? changed : whole, from ? (int64_t)strlen(changed) : bytes);
    gx_json_free(root_json);
    free(text), free(whole), free(changed);
}

static const GxJson *pipeline_of(const char *name)
{
    for (int i = 0; i < wanted.n; i++)
        if (!strcmp(wanted.pipeline[i].name, name)) return gx_json_at(wanted.pipelines, i);
    CHECK(0, "there is no pipeline %s", name);
    return NULL;
}

static int open_pipeline(GxTokenizer *t, int i)
{
    GxError err = GX_ZERO;
    put_pipeline(gx_json_at(wanted.pipelines, i), NULL, NULL);
    return CHECK(gx_tokenizer_open(t, at("tokenizer.json"), &err) == GX_OK, "%s: %s", wanted.pipeline[i].name,
                 err.message) &&
           CHECK(t->vocab_size == wanted.pipeline[i].vocab, "%s: %d pieces, expected %d", wanted.pipeline[i].name,
                 t->vocab_size, wanted.pipeline[i].vocab);
}

// ---- ids and text --------------------------------------------------------------------------------------------------

static uint64_t hash_string(uint64_t hash, const GxTokenizer *t, int i)
{
    int32_t *ids = NULL, random[20];
    int64_t n = 0;
    for (int k = 0; k < 2; k++) {
        free(ids);
        ids = encode(t, &expected.string[i], k ? GX_SPECIAL_AS_TEXT : GX_SPECIAL_AS_TOKENS, &n);
        hash = hash_ids(hash, ids, n);
    }
    hash = hash_decoded(hash, t, ids, n);
    free(ids);
    numbers_state = (uint64_t)i;
    n = 1 + (int64_t)below(20);
    for (int k = 0; k < n; k++) random[k] = (int32_t)below((uint64_t)t->vocab_size);
    return hash_decoded(hash, t, random, n);
}

// Under a sanitizer every fourth string, without the hashes of all that pipelines have.
static void check_strings(void)
{
    static uint64_t hash[STRINGS];
    const int apart = TEST_IS_SANITIZED && !test_long() ? 4 : 1;
    int wrong = 0;
    for (int i = 0; i < STRINGS; i++) hash[i] = GX_HASH_START;
    for (int p = 0; p < wanted.n; p++) {
        GxTokenizer t;
        if (!open_pipeline(&t, p)) return;
        for (int i = 0; i < STRINGS; i += apart) hash[i] = hash_string(hash[i], &t, i);
        CHECK(apart > 1 || gx_hash(GX_HASH_START, hash, sizeof hash) == wanted.pipeline[p].hash,
              "%s is the first that differs", wanted.pipeline[p].name);
        gx_tokenizer_close(&t);
    }
    for (int i = 0; i < STRINGS; i += apart)
        if (short_hash(hash[i]) != expected.hash[i] && wrong++ < 5)
            CHECK(0, "string %d: \"%.*s\"", i, (int)expected.string[i].n, expected.string[i].p);
    CHECK(wrong == 0, "%d strings have other ids", wrong);
}

// `cut`: the names of the pipelines whose texts can be cut, each behind a space and before a comma.
static void check_cuts(const char *cut)
{
    for (int p = 0; p < wanted.n; p++) {
        char name[48];
        GxTokenizer t;
        if (!open_pipeline(&t, p)) return;
        const int places = check_cuts_of(&t, wanted.pipeline[p].name, 40);
        snprintf(name, sizeof name, " %s,", wanted.pipeline[p].name);
        CHECK(strstr(cut, name) ? places > 100 : places == 0, "%s: %d places", wanted.pipeline[p].name, places);
        gx_tokenizer_close(&t);
    }
}

static void add_point(Bytes *b, uint32_t c)
{
    add(b, "a", 1), add_character(b, c);
    add(b, "1", 1), add_character(b, c);
    add(b, " ", 1), add_character(b, c);
    add(b, "!", 1);
}

// Chunks of points that are all alike, and to which no rule does anything: ideographs, points that nothing is assigned
// to, and private ones. Of these a test takes the first and one of each plane, in every pipeline another; under a
// sanitizer, of all chunks every 32nd. GX_TEST_LONG=1: all of them.
static int takes_chunk(int pipeline, uint32_t first)
{
    static const uint32_t alike[][2] = {{0x5000, 0x9000}, {0x20000, 0x2A000}, {0x34000, 0xE0000}, {0xE1000, 0x110000}};
    const uint32_t chunk = first / POINTS, plane = first >> 16;
    if (test_long()) return 1;
    if (TEST_IS_SANITIZED) return (chunk + 5 * (uint32_t)pipeline) % 32 == 0;
    for (int i = 0; i < 4; i++)
        if (first > alike[i][0] && first < alike[i][1]) return chunk % 16 == (plane + (uint32_t)pipeline) % 16;
    return 1;
}

static void check_points(int least) // in so many pipelines at least
{
    int pipelines = 0;
    for (int p = 0; p < wanted.n; p++) {
        GxTokenizer t;
        if (!wanted.pipeline[p].has_points) continue;
        if (!open_pipeline(&t, p)) return;
        pipelines++;
        for (uint32_t first = 0; first < 0x110000; first += POINTS) {
            uint64_t hash = GX_HASH_START;
            if (!takes_chunk(p, first)) continue;
            for (uint32_t block = first; block < first + POINTS; block += 256) {
                Bytes text = GX_ZERO;
                int64_t n;
                add(&text, "", 0);
                for (uint32_t c = block; c < block + 256; c++)
                    if (c < 0xD800 || c > 0xDFFF) add_point(&text, c);
                int32_t *ids = encode(&t, &text, GX_SPECIAL_AS_TOKENS, &n);
                hash = hash_ids(hash, ids, n);
                free(ids), free(text.p);
            }
            CHECK(short_hash(hash) == wanted.pipeline[p].points[first / POINTS], "%s: U+%04X to U+%04X",
                  wanted.pipeline[p].name, (unsigned)first, (unsigned)first + POINTS - 1);
        }
        gx_tokenizer_close(&t);
    }
    CHECK(pipelines >= least, "%d pipelines", pipelines);
}

static void check_frames(void)
{
    enum { PAIRS = 300 };
    for (int p = 0; p < wanted.n; p++) {
        GxTokenizer t;
        uint64_t hash = GX_HASH_START;
        if (!open_pipeline(&t, p)) return;
        for (int i = 0; i < PAIRS; i++) {
            numbers_state = (uint64_t)i;
            const Bytes *a = &expected.string[below(STRINGS)], *b = &expected.string[below(STRINGS)];
            const int64_t most = 6 + (int64_t)below(40);
            int32_t *ids = (int32_t *)malloc((size_t)most * 4), *types = (int32_t *)malloc((size_t)most * 4);
            GxTokenTexts texts = GX_ZERO;
            int32_t *first = encode(&t, a, GX_SPECIAL_AS_TOKENS, &texts.n_a),
                    *second = encode(&t, b, GX_SPECIAL_AS_TOKENS, &texts.n_b);
            texts.a = first, texts.b = second;
            for (int one = 0; one < 2; one++, texts.b = NULL) {
                GxError err = GX_ZERO;
                int64_t n;
                CHECK(gx_tokenizer_join(&t, &texts, most, ids, types, &n, NULL, &err) == GX_OK, "%s", err.message);
                hash = hash_ids(hash_ids(hash, ids, n), types, n);
            }
            free(ids), free(types), free(first), free(second);
        }
        CHECK(hash == wanted.pipeline[p].pairs, "%s: other frames", wanted.pipeline[p].name);
        gx_tokenizer_close(&t);
    }
}

// Bytes that are not UTF-8, a 0 among them, and nothing at all, in every pipeline.
static void check_odd_texts(void)
{
    static const Bytes texts[] = {{(char *)"", 0},
                                  {(char *)"\xFF\xFE\xC0", 3},
                                  {(char *)"a\xE2\x82", 3},
                                  {(char *)"\xED\xA0\x80", 3},
                                  {(char *)"\xEF\xBF\xBD\xFF", 4},
                                  {(char *)"\xCC", 1},
                                  {(char *)"a\0b", 3}};
    for (int p = 0; p < wanted.n; p++) {
        GxTokenizer t;
        if (!open_pipeline(&t, p)) return;
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            int64_t n;
            Bytes exact = {(char *)malloc((size_t)texts[i].n), texts[i].n}; // nothing behind it may be read
            memcpy(exact.p, texts[i].p, (size_t)exact.n);
            int32_t *ids = encode(&t, &exact, GX_SPECIAL_AS_TOKENS, &n);
            CHECK((n == 0) == (exact.n == 0), "%s: %ld tokens of %ld bytes", wanted.pipeline[p].name, (long)n,
                  (long)exact.n);
            free(exact.p), free(ids);
        }
        gx_tokenizer_close(&t);
    }
}
#endif
