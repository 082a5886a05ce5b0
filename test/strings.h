// test/strings.h: what the tests of tokenizers share: a folder for files, and the 10,000 strings that
// dev/ref/make_tokenizers.py, make_bpe.py and make_unigram.py have, too: lines of text, and parts of such lines, traps
// and characters of many scripts put together at random.
#ifndef TEST_STRINGS_H
#define TEST_STRINGS_H
#include <sys/stat.h>
#include <unistd.h>
#include "../galaxy.h"
#include "test.h"
#pragma GCC diagnostic ignored "-Wunused-function" // no test program uses all of this

// ---- words of these tests ------------------------------------------------------------------------------------------

static char root[GX_PATH]; // made in test_in_folder, removed there

static const char *at(const char *name) // the path of `name` in the temporary folder; good for the next 8 calls
{
    static char paths[8][GX_PATH];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, GX_PATH, "%.600s/%.300s", root, name);
    return path;
}

static void put(const char *path, const void *data, int64_t bytes)
{
    GxError err = GX_ZERO;
    CHECK(gx_file_write(path, data, bytes, &err) == GX_OK, "%s", err.message);
}

static char *get(const char *path)
{
    GxError err = GX_ZERO;
    char *text = NULL;
    int64_t bytes;
    CHECK(gx_file_read(path, 64 << 20, &text, &bytes, &err) == GX_OK, "%s", err.message);
    return text;
}

// Checks that an error of this code was set, whose message holds both parts, and clears it.
static void refused(GxError *err, GxStatus status, GxStatus expected, const char *file, const char *part)
{
    CHECK(status == expected && gx_error_code(err) == expected, "%s: status %s, expected %s (%s)", part,
          gx_status_name(status), gx_status_name(expected), err->message);
    CHECK(strstr(err->message, part) && strstr(err->message, file), "\"%s\" does not hold \"%s\" and \"%s\"",
          err->message, file, part);
    gx_error_clear(err);
}

// text with `from` replaced by `to`; free it.
__attribute__((unused)) static char *replaced(const char *text, const char *from, const char *to)
{
    const char *place = strstr(text, from);
    char *out = (char *)malloc(strlen(text) + strlen(to) + 1);
    if (!CHECK(place != NULL, "%s is not in the text", from)) place = text + strlen(text), from = "";
    sprintf(out, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
    return out;
}

// ---- strings -------------------------------------------------------------------------------------------------------

enum { STRINGS = 10000, LINES_MOST = 3000, TRAPS_MOST = 300, RANGES_MOST = 100 };
typedef struct {
    char *p;
    int64_t n;
} Bytes;
static struct {
    char *text[2], *line[LINES_MOST];
    Bytes trap[TRAPS_MOST], string[STRINGS];
    uint32_t first[RANGES_MOST], last[RANGES_MOST], hash[STRINGS];
    int lines, traps, ranges, hashes;
} expected;

static void read_trap(const char *hex)
{
    Bytes *b = &expected.trap[expected.traps++];
    unsigned byte;
    b->p = (char *)malloc(strlen(hex) / 2 + 1);
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2) b->p[b->n++] = (char)byte;
}

// A line of what a script of dev/ref wrote; what it does not know goes to `other`.
static void read_line(char *line, void (*other)(const char *line))
{
    unsigned a, b;
    if (!strncmp(line, "line ", 5)) expected.line[expected.lines++] = line + 5;
    else if (!strncmp(line, "trap ", 5)) read_trap(line + 5);
    else if (sscanf(line, "range %x %x", &a, &b) == 2)
        expected.first[expected.ranges] = a, expected.last[expected.ranges++] = b;
    else if (sscanf(line, "string %x", &a) == 1) expected.hash[expected.hashes++] = a;
    else if (other) other(line);
}

// Its lines alone, or all of it.
static void read_expected(int file, const char *path, int lines_alone, void (*other)(const char *line))
{
    expected.text[file] = get(path);
    for (char *line = expected.text[file], *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end) *end++ = 0;
        if (!lines_alone || !strncmp(line, "line ", 5)) read_line(line, other);
    }
}

static uint64_t numbers_state;
static uint64_t below(uint64_t n) // splitmix64 (Steele et al. 2014), as in make_tokenizers.py
{
    uint64_t x = numbers_state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (x ^ x >> 31) % n;
}

static void add(Bytes *b, const char *p, int64_t n)
{
    b->p = (char *)realloc(b->p, (size_t)(b->n + n + 1));
    memcpy(b->p + b->n, p, (size_t)n);
    b->n += n;
}

static void add_character(Bytes *b, uint32_t c)
{
    char utf8[4];
    add(b, utf8, gx_unicode_encode(c, utf8));
}

static void add_part(Bytes *b)
{
    const int kind = (int)below(8);
    if (kind < 2) {
        const char *line = expected.line[below((uint64_t)expected.lines)];
        const int64_t n = (int64_t)strlen(line), from = (int64_t)below((uint64_t)n);
        add(b, line + from, gx_min(1 + (int64_t)below(12), n - from));
    } else if (kind == 2) {
        const Bytes *trap = &expected.trap[below((uint64_t)expected.traps)];
        add(b, trap->p, trap->n);
    } else if (kind < 6) {
        const int range = (int)below((uint64_t)expected.ranges);
        add_character(b, expected.first[range] +
                             (uint32_t)below((uint64_t)(expected.last[range] - expected.first[range] + 1)));
    } else if (kind == 6) add(b, " ", 1);
    else {
        const uint32_t c = (uint32_t)below(0x110000 - 0x800);
        add_character(b, c < 0xD800 ? c : c + 0x800);
    }
}

static void make_string(int i)
{
    Bytes *b = &expected.string[i];
    add(b, "", 0);
    if (i < expected.lines) {
        add(b, expected.line[i], (int64_t)strlen(expected.line[i]));
        return;
    }
    numbers_state = (uint64_t)i;
    const int n = 1 + (int)below(24);
    for (int k = 0; k < n; k++) {
        const char byte = i % 50 ? 0 : (char)below(256);
        if (i % 50) add_part(b);
        else add(b, &byte, 1);
    }
}

// A file of strings, each with a line feed behind it: the lines of text, if they are wanted, and the last `others`.
__attribute__((unused)) static void put_training_text(const char *path, int has_lines, int others)
{
    int64_t most = 0, n = 0;
    for (int i = 0; i < STRINGS; i++) most += 3 * expected.string[i].n + 1; // a byte that is no UTF-8 becomes three
    char *all = (char *)malloc((size_t)most);
    for (int i = has_lines ? 0 : expected.lines; i < STRINGS; i++) {
        if (i >= expected.lines && i < STRINGS - others) continue;
        const char *end = expected.string[i].p + expected.string[i].n;
        for (const char *p = expected.string[i].p; p < end;) {
            uint32_t c;
            p += gx_unicode_decode(p, end, &c);
            if (c) n += gx_unicode_encode(c, all + n);
        }
        all[n++] = '\n';
    }
    put(path, all, n);
    free(all);
}

__attribute__((unused)) static uint32_t short_hash(uint64_t h) { return (uint32_t)(h ^ h >> 32); }

// ---- ids -----------------------------------------------------------------------------------------------------------

__attribute__((unused)) static uint64_t hash_ids(uint64_t hash, const int32_t *ids, int64_t n)
{
    const int32_t count = (int32_t)n;
    return gx_hash(gx_hash(hash, &count, 4), ids, 4 * n);
}

// Text and ids in memory of exactly their size: nothing beside them is touched.
static int32_t *encode(const GxTokenizer *t, const Bytes *text, GxSpecialTokens special, int64_t *n)
{
    GxError err = GX_ZERO;
    const int64_t most = gx_tokenizer_most(t, text->n);
    int32_t *ids = (int32_t *)malloc((size_t)most * sizeof *ids);
    CHECK(gx_tokenizer_encode(t, text->p, text->n, special, ids, n, &err) == GX_OK, "%s", err.message);
    CHECK(*n <= most, "%ld tokens of %ld bytes", (long)*n, (long)text->n);
    return ids;
}

// Texts of many strings with ends of lines between them, cut wherever that is said to change nothing: both parts have
// the ids of the whole. How many places there were.
__attribute__((unused)) static int check_cuts_of(const GxTokenizer *t, const char *name, int texts)
{
    static const char *const between[] = {"\n", "\n", "\n", " ", "\n\n", "\r\n", " \n", ""};
    static const char before[] = "z9.,'/>-~", behind[] = "AsTdz";
    int places = 0, wrong = 0;
    for (int i = 0; i < texts; i++) {
        Bytes text = GX_ZERO;
        int64_t n, n_first, n_second;
        numbers_state = (uint64_t)i;
        for (int k = 0; k < 24; k++) {
            const Bytes *b = &expected.string[below(STRINGS)];
            const char *end = between[below(8)];
            if (below(2)) add(&text, &behind[below(5)], 1);
            add(&text, b->p, b->n);
            if (below(2)) add(&text, &before[below(9)], 1);
            add(&text, end, (int64_t)strlen(end));
        }
        const GxSpecialTokens special = i % 2 ? GX_SPECIAL_AS_TEXT : GX_SPECIAL_AS_TOKENS;
        int32_t *ids = encode(t, &text, special, &n);
        for (int64_t cut = gx_tokenizer_cut(t, text.p, text.n, 0); cut < text.n;
             cut = gx_tokenizer_cut(t, text.p, text.n, cut + 1)) {
            const Bytes part[2] = {{text.p, cut}, {text.p + cut, text.n - cut}};
            int32_t *first = encode(t, &part[0], special, &n_first), *second = encode(t, &part[1], special, &n_second);
            const int is_same = n_first + n_second == n && !memcmp(first, ids, 4 * (size_t)n_first) &&
                                !memcmp(second, ids + n_first, 4 * (size_t)n_second);
            if (!is_same && wrong++ < 3)
                CHECK(0, "%s: text %d, cut at %ld, \"%.*s\", has other ids", name, i, (long)cut, 12, text.p + cut - 6);
            places++;
            free(first), free(second);
        }
        free(ids), free(text.p);
    }
    CHECK(wrong == 0, "%s: %d of %d places are wrong", name, wrong, places);
    return places;
}

static uint64_t hash_decoded(uint64_t hash, const GxTokenizer *t, const int32_t *ids, int64_t n)
{
    static const GxSpecialTokens ways[] = {GX_SPECIAL_AS_TOKENS, GX_SPECIAL_AS_TEXT};
    for (int k = 0; k < 2; k++) {
        GxError err = GX_ZERO;
        char *text = (char *)malloc((size_t)(n * t->longest));
        int64_t bytes = 0;
        CHECK(gx_tokenizer_decode(t, ids, n, ways[k], text, &bytes, &err) == GX_OK, "%s", err.message);
        hash = gx_hash(hash, text, bytes);
        free(text);
    }
    return hash;
}

// ---- main ----------------------------------------------------------------------------------------------------------

static int test_in_folder(int argc, char **argv, const char *name)
{
    GxError err = GX_ZERO;
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.500s/%.100s.XXXXXX", parent && parent[0] ? parent : "/tmp", name);
    if (!mkdtemp(root)) {
        printf("cannot make a temporary folder %s\n", root);
        return 1;
    }
    const int failed = test_main(argc, argv);
    if (gx_folder_remove(root, &err) != GX_OK) printf("%s\n", err.message);
    for (int i = 0; i < STRINGS; i++) free(expected.string[i].p);
    for (int i = 0; i < expected.traps; i++) free(expected.trap[i].p);
    for (int i = 0; i < 2; i++) free(expected.text[i]);
    return failed;
}
#endif
