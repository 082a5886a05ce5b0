// test_gguf.cu: GGUF files: blocks and whole files against what the package `gguf` makes of them (data/ref/gguf, by
// dev/ref/make_gguf.py), what is refused, and files of our own, written and read again.
#include "galaxy/io/gguf.h"
#include "galaxy/io/safetensors.h"
#include "test/test.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- words of these tests ------------------------------------------------------------------------------------------

static char root[GX_PATH]; // made in main, removed there

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
    FILE *f = fopen(path, "wb");
    if (!CHECK(f != NULL, "cannot create %s", path)) return;
    fwrite(data, 1, (size_t)bytes, f);
    fclose(f);
}

static int names_in_root(void)
{
    GxError err = GX_ZERO;
    GxFolder folder;
    if (gx_folder_list(&folder, root, &err) != GX_OK) return -1;
    const int n = folder.n;
    gx_folder_close(&folder);
    return n;
}

static void refused(GxError *err, GxStatus status, GxStatus expected, const char *part, const char *what)
{
    CHECK(status == expected && gx_error_code(err) == expected, "%s: status %s, expected %s (%s)", what,
          gx_status_name(status), gx_status_name(expected), err->message);
    CHECK(strstr(err->message, part) != NULL, "%s: the message \"%s\" does not hold \"%s\"", what, err->message, part);
    gx_error_clear(err);
}

// A file from words: w7: 7 as u32; q7: as u64; b7: one byte; 'ab': a string, its length before it; =ab: these letters;
// z: zeros up to a multiple of 32; d7: 7 bytes of data.
static int64_t build(const char *words, unsigned char *out)
{
    int64_t n = 0;
    for (const char *p = words; *p;) {
        const char *end = strchr(p + 1, ' ');
        const int64_t length = end ? end - p : (int64_t)strlen(p);
        const uint64_t number = strtoull(p + 1, NULL, 10);
        const int bytes = *p == 'w' ? 4 : *p == 'q' ? 8 : *p == 'b' ? 1 : 0;
        memcpy(out + n, &number, (size_t)bytes);
        n += bytes;
        if (*p == '\'') {
            const uint64_t letters = (uint64_t)(length - 2);
            memcpy(out + n, &letters, 8);
            memcpy(out + n + 8, p + 1, (size_t)letters);
            n += 8 + (int64_t)letters;
        }
        if (*p == '=') memcpy(out + n, p + 1, (size_t)(length - 1)), n += length - 1;
        for (; *p == 'z' && n % 32; n++) out[n] = 0;
        for (uint64_t i = 0; *p == 'd' && i < number; i++) out[n++] = (unsigned char)(i % 251);
        p += length + (end != NULL);
    }
    return n;
}

static unsigned char built[1 << 16];
#define HEAD(tensors, keys) "=GGUF w3 q" tensors " q" keys " "
#define T(name, type)       "'" name "' w1 q4 w" type " q0 "
#define X63                 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// ---- what others wrote ---------------------------------------------------------------------------------------------

static const char reference[] = "data/ref/gguf/small.gguf";

TEST(tensors_of_every_type_have_the_bits_that_the_package_gguf_gives_them)
{
    static const char *const names[] = {"f32.weight",  "one.bias",    "f16.weight",  "bf16.weight", "q8_0.weight",
                                        "q4_0.weight", "q4_1.weight", "q4_k.weight", "q6_k.weight"};
    GxError err = GX_ZERO;
    GxGguf g;
    GxSafetensors s;
    CHECK(gx_gguf_open(&g, reference, &err) == GX_OK, "%s", err.message);
    CHECK(gx_safetensors_open(&s, "data/ref/gguf/expected.safetensors", &err) == GX_OK, "%s", err.message);
    CHECK(g.tensors == (int)(sizeof names / sizeof *names), "%d tensors", g.tensors);
    for (int i = 0; i < g.tensors; i++) {
        const GxGgufTensor *t = gx_gguf_find(&g, names[i]);
        const GxSafetensorsEntry *e = gx_safetensors_find(&s, names[i]);
        if (!CHECK(t && e && t->ndim == e->ndim && t->elements == e->elements, "%s is not there", names[i])) continue;
        float *ours = (float *)calloc((size_t)t->elements, sizeof *ours),
              *theirs = (float *)calloc((size_t)t->elements, sizeof *theirs);
        for (int d = 0; d < t->ndim; d++)
            CHECK(t->shape[d] == e->shape[d], "%s: dimension %d is %ld", t->name, d, (long)t->shape[d]);
        CHECK(gx_safetensors_read(&s, e, 0, e->elements, theirs, &err) == GX_OK, "%s", err.message);
        CHECK(gx_gguf_read(&g, t, 0, t->elements, ours, &err) == GX_OK, "%s", err.message);
        CHECK(!memcmp(ours, theirs, (size_t)t->elements * 4), "%s: other bits", t->name);
        for (int64_t first = 0; first < t->elements; first += 1 + first / 3) { // pieces that begin inside of blocks
            const int64_t n = gx_min(t->elements - first, 1 + first % 97);
            CHECK(gx_gguf_read(&g, t, first, n, ours, &err) == GX_OK, "%s", err.message);
            CHECK(!memcmp(ours, theirs + first, (size_t)n * 4), "%s: other bits from %ld on", t->name, (long)first);
        }
        refused(&err, gx_gguf_read(&g, t, t->elements, 1, ours, &err), GX_ERR_ARGUMENT, t->name, "beyond the end");
        refused(&err, gx_gguf_read(&g, t, -1, 1, ours, &err), GX_ERR_ARGUMENT, t->name, "before the beginning");
        refused(&err, gx_gguf_read_raw(&g, t, 1, t->bytes, ours, &err), GX_ERR_ARGUMENT, t->name, "raw");
        free(ours), free(theirs);
    }
    CHECK(gx_gguf_find(&g, "f32") == NULL && gx_gguf_find(&g, "zzz") == NULL, "a tensor that is not there is found");
    gx_gguf_close(&g);
    gx_safetensors_close(&s);
}

TEST(floats_become_the_bytes_that_the_package_gguf_makes_of_them)
{
    static const int types[] = {GX_GGUF_F16, GX_GGUF_BF16, GX_GGUF_Q8_0};
    GxError err = GX_ZERO;
    GxSafetensors s;
    CHECK(gx_safetensors_open(&s, "data/ref/gguf/expected.safetensors", &err) == GX_OK, "%s", err.message);
    for (int i = 0; i < 3; i++) {
        const GxGgufType *t = gx_gguf_type(types[i]);
        char name[64];
        snprintf(name, sizeof name, "%s.floats", t->name);
        const GxSafetensorsEntry *from = gx_safetensors_find(&s, name);
        snprintf(name, sizeof name, "%s.bytes", t->name);
        const GxSafetensorsEntry *to = gx_safetensors_find(&s, name);
        if (!CHECK(from && to && from->elements / t->elements * t->bytes == to->elements, "%s", name)) continue;
        float *x = (float *)malloc((size_t)from->elements * sizeof *x);
        unsigned char *ours = (unsigned char *)malloc((size_t)to->elements),
                      *theirs = (unsigned char *)malloc((size_t)to->elements);
        gx_safetensors_read(&s, from, 0, from->elements, x, &err);
        gx_safetensors_read_raw(&s, to, 0, to->elements, theirs, &err);
        CHECK(gx_gguf_encode(types[i], x, from->elements / t->elements, ours, &err) == GX_OK, "%s", err.message);
        int64_t same = 0;
        while (same < to->elements && ours[same] == theirs[same]) same++;
        CHECK(same == to->elements, "%s: byte %ld is another one", t->name, (long)same);
        free(x), free(ours), free(theirs);
    }
    gx_safetensors_close(&s);
}

TEST(keys_of_every_kind_are_read)
{
    GxError err = GX_ZERO;
    GxGguf g;
    int64_t i = 0;
    double d = 0;
    int b = 0;
    const char *s = "";
    const GxGgufKey *k = NULL;
    const struct {
        const char *name;
        int64_t value;
    } ints[] = {{"a.uint8", 200},
                {"a.int8", -100},
                {"a.uint16", 50000},
                {"a.int16", -30000},
                {"a.uint32", 4000000000},
                {"a.int32", -2000000000},
                {"a.uint64", (int64_t)1 << 62},
                {"a.int64", -((int64_t)1 << 62)}};
    CHECK(gx_gguf_open(&g, reference, &err) == GX_OK, "%s", err.message);
    CHECK(g.version == 3 && g.alignment == 32, "version %ld, alignment %ld", (long)g.version, (long)g.alignment);
    for (size_t n = 0; n < sizeof ints / sizeof *ints; n++) {
        CHECK(gx_gguf_get_int(&g, ints[n].name, 1, &i, &err) == GX_OK, "%s", err.message);
        CHECK(i == ints[n].value, "%s is %ld", ints[n].name, (long)i);
    }
    CHECK(gx_gguf_get_double(&g, "a.float32", 1, &d, &err) == GX_OK && d == 1e-5f, "%g %s", d, err.message);
    CHECK(gx_gguf_get_double(&g, "a.float64", 1, &d, &err) == GX_OK && d == 0.1, "%g %s", d, err.message);
    CHECK(gx_gguf_get_bool(&g, "a.bool", 1, &b, &err) == GX_OK && b == 1, "%d %s", b, err.message);
    CHECK(gx_gguf_get_string(&g, "a.string", 1, &s, &err) == GX_OK && !strcmp(s, "Größe"), "%s %s", s, err.message);
    CHECK(gx_gguf_get_array(&g, "a.strings", 1, GX_GGUF_STRING, &k, &err) == GX_OK && k->count == 4, "%s", err.message);
    CHECK(!strcmp(gx_gguf_string_at(&g, k, 0, &i), "") && i == 0 &&
              !strcmp(gx_gguf_string_at(&g, k, 2, &i), "two words") && i == 9,
          "strings");
    CHECK(gx_gguf_get_array(&g, "a.ints", 1, GX_GGUF_INT32, &k, &err) == GX_OK && k->count == 3, "%s", err.message);
    CHECK(gx_gguf_int_at(&g, k, 0) == 3 && gx_gguf_int_at(&g, k, 1) == -1, "integers");
    CHECK(gx_gguf_get_array(&g, "a.bytes", 1, GX_GGUF_INT32, &k, &err) == GX_OK && gx_gguf_int_at(&g, k, 1) == 255,
          "%s", err.message);
    CHECK(gx_gguf_get_array(&g, "a.floats", 1, GX_GGUF_FLOAT32, &k, &err) == GX_OK && gx_gguf_double_at(&g, k, 1) == -2,
          "%s", err.message);
    i = 7;
    CHECK(gx_gguf_get_int(&g, "none", 0, &i, &err) == GX_OK && i == 7, "an absent key changes what was there");
    refused(&err, gx_gguf_get_int(&g, "none", 1, &i, &err), GX_ERR_FORMAT, "the key none is missing", "required");
    refused(&err, gx_gguf_get_int(&g, "a.float32", 1, &i, &err), GX_ERR_FORMAT, "is float32; expected an integer",
            "int");
    refused(&err, gx_gguf_get_int(&g, "a.ints", 1, &i, &err), GX_ERR_FORMAT, "an array of int32; expected an integer",
            "int");
    refused(&err, gx_gguf_get_double(&g, "a.int8", 1, &d, &err), GX_ERR_FORMAT, "is int8; expected a float", "double");
    refused(&err, gx_gguf_get_bool(&g, "a.int8", 1, &b, &err), GX_ERR_FORMAT, "is int8; expected a bool", "bool");
    refused(&err, gx_gguf_get_string(&g, "a.bool", 1, &s, &err), GX_ERR_FORMAT, "is bool; expected a string", "string");
    refused(&err, gx_gguf_get_array(&g, "a.strings", 1, GX_GGUF_INT32, &k, &err), GX_ERR_FORMAT,
            "an array of a string; expected an array of integers", "array");
    gx_gguf_close(&g);
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(what_breaks_a_rule_is_refused)
{
    static const struct {
        const char *words, *message;
        GxStatus status;
    } bad[] = {
        {"", "ends at byte 0, before the end of the first four bytes", GX_ERR_FORMAT},
        {"=GGU", "ends at byte 3", GX_ERR_FORMAT},
        {"=GGML w3 q0 q0", "does not begin with \"GGUF\"", GX_ERR_FORMAT},
        {"=GGUF w1 q0 q0", "has version 1", GX_ERR_UNSUPPORTED},
        {"=GGUF w4 q0 q0", "has version 4", GX_ERR_UNSUPPORTED},
        {"=GGUF w50331648 q0 q0", "big-endian", GX_ERR_UNSUPPORTED},
        {"=GGUF w3 q0", "before the end of the number of keys", GX_ERR_FORMAT},
        // counts
        {HEAD("0", "1") "d13", "the number of keys is 1, but the file has 13 bytes left", GX_ERR_FORMAT},
        {HEAD("0", "18446744073709551615") "d99", "the number of keys is 18446744073709551615, but", GX_ERR_FORMAT},
        {HEAD("1", "0") "d23", "the number of tensors is 1, but the file has 23 bytes left", GX_ERR_FORMAT},
        {HEAD("1099511627776", "0") "d99", "the number of tensors is 1099511627776, but", GX_ERR_FORMAT},
        {HEAD("18446744073709551615", "0") "d99", "the number of tensors is 18446744073709551615, but", GX_ERR_FORMAT},
        // keys
        {HEAD("0", "1") "'' w4 q7", "a key's name has 0 bytes", GX_ERR_FORMAT},
        {HEAD("0", "1") "q99 d50", "a key's name has 99 bytes", GX_ERR_FORMAT},
        {HEAD("0", "1") "q18446744073709551615 d50", "a key's name has 18446744073709551615 bytes", GX_ERR_FORMAT},
        {HEAD("0", "2") "'a' w4 w7 'a' w4 w8", "it has the key a twice", GX_ERR_FORMAT},
        {HEAD("0", "3") "'b' w4 w7 'a' w4 w7 'b' w7 b1", "it has the key b twice", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w13 q7", "the key a has values of the type 13", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w4 b1 b2 b3", "the key a has an item count of 1 (type: uint32); bytes left in the file: 3",
         GX_ERR_FORMAT},
        {HEAD("0", "1") "'ab' w8 q4 d3", "the key ab has 4 bytes", GX_ERR_FORMAT},
        {HEAD("0", "1") "'ab' w8 q18446744073709551615 d3", "the key ab has 18446744073709551615 bytes", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w9 w9 q0 d9", "array of arrays", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w9 w4 q2 w1 b1",
         "the key a has an item count of 2 (type: uint32); bytes left in the file: 5", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w9 w4 q4611686018427387904 d9", "an item count of 4611686018427387904", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w9 w12 q2305843009213693952 d9", "an item count of 2305843009213693952", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w9 w8 q3 'b' 'c'", "the key a has an item count of 3 (type: a string)", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w9 w8 q2 'b' q9 d3", "the key a has 9 bytes", GX_ERR_FORMAT},
        {HEAD("0", "1") "'a' w9 w99 q0 d9", "values of the type 99", GX_ERR_FORMAT},
        {HEAD("0", "1") "'general.alignment' w10 q32", "general.alignment is uint64; expected uint32", GX_ERR_FORMAT},
        {HEAD("0", "1") "'general.alignment' w9 w4 q1 w32", "is an array of uint32", GX_ERR_FORMAT},
        {HEAD("0", "1") "'general.alignment' w4 w0", "general.alignment is 0; expected a power", GX_ERR_FORMAT},
        {HEAD("0", "1") "'general.alignment' w4 w48", "general.alignment is 48", GX_ERR_FORMAT},
        {HEAD("0", "1") "'split.count' w2 b2 b0", "one of 2 parts", GX_ERR_UNSUPPORTED},
        // tensors
        {HEAD("1", "0") "'" X63 "x' w1 q4 w0 q0 z d16", "has 64 bytes; at most 63", GX_ERR_FORMAT},
        {HEAD("2", "0") T("a", "0") "'a' w1 q4 w0 q32 z d64", "tensor a: two tensors have this name", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w5 q1 q1 q1 q1 q1 w0 q0 z d32", "tensor a: it has 5 dimensions", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w1 q9223372036854775808 w24 q0 z d32", "dimension 0 is 9223372036854775808",
         GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w2 q8589934592 q8589934592 w24 q0 z d32", "does not fit into 64 bits", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w1 q4611686018427387904 w0 q0 z d32", "does not fit into 64 bits", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w3 q0 q8589934592 q8589934592 w24 q0 z d32", "does not fit into 64 bits", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w2 q33 q32 w8 q0 z d9999", "rows of 33 elements; Q8_0 has blocks of 32", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w0 w12 q0 z d9999", "rows of 1 elements; Q4_K has blocks of 256", GX_ERR_FORMAT},
        {HEAD("1", "0") T("a", "4") "z d32", "tensor a: the type 4 is not known", GX_ERR_FORMAT},
        {HEAD("1", "0") T("a", "4294967295") "z d32", "the type 4294967295 is not known", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w1 q4 w0 q32 z d64", "begins at byte 32 of the data; expected 0", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w1 q4 w0 q18446744073709551584 z d64", "begins at byte 18446744073709551584",
         GX_ERR_FORMAT},
        {HEAD("2", "0") T("a", "0") "'b' w1 q4 w0 q16 z d64", "tensor b: it begins at byte 16 of the data; expected 32",
         GX_ERR_FORMAT},
        {HEAD("2", "0") T("a", "0") "'b' w1 q4 w0 q0 z d64", "tensor b: it begins at byte 0", GX_ERR_FORMAT},
        {HEAD("2", "0") T("a", "0") "'b' w1 q4 w0 q64 z d99", "tensor b: it begins at byte 64", GX_ERR_FORMAT},
        {HEAD("1", "0") T("a", "0") "z d15",
         "tensor a: it has 16 bytes, from byte 0 of the data on, but the file has 15", GX_ERR_FORMAT},
        {HEAD("1", "0") T("a", "0"), "the file has 0: it is cut off", GX_ERR_FORMAT},
        {HEAD("1", "0") "'a' w1 q1152921504606846975 w0 q0 z d32", "it is cut off", GX_ERR_FORMAT},
        {HEAD("1", "1") "'general.alignment' w4 w2147483648 " T("a", "0") "z d32", "it is cut off", GX_ERR_FORMAT},
        {HEAD("2", "0") T("a", "0") "'b' w1 q4", "before the end of a tensor's type", GX_ERR_FORMAT}};
    GxError err = GX_ZERO;
    GxGguf g;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(at("x.gguf"), built, build(bad[i].words, built));
        const GxStatus status = gx_gguf_open(&g, at("x.gguf"), &err);
        CHECK(strstr(err.message, "x.gguf") != NULL, "the file is not named in \"%s\"", err.message);
        refused(&err, status, bad[i].status, bad[i].message, bad[i].words);
        CHECK(g.fd == -1 && !g.key && !g.tensor && !g.text, "something stayed open");
    }
    refused(&err, gx_gguf_open(&g, at("none.gguf"), &err), GX_ERR_IO, "cannot open", "no file");
    refused(&err, gx_gguf_open(&g, root, &err), GX_ERR_IO, "is a folder", "a folder");
    unlink(at("x.gguf"));
}

TEST(what_is_odd_but_read_by_others_is_read)
{
    static const struct {
        const char *words;
        int keys, tensors;
        int64_t elements; // of tensor a
    } odd[] = {{"=GGUF w2 q0 q0", 0, 0, -1},
               {HEAD("1", "0") T("a", "0") "z d16", 0, 1, 4}, // the last is not padded
               {HEAD("1", "0") T("a", "0") "z d99", 0, 1, 4}, // bytes behind it
               {HEAD("1", "0") T("a", "0") "b1 b2 b3 b4 b5 b6 b7 b8 b9 b1 b1 b1 b1 b1 b1 b1 b1 b1 b1 b1 b1 b1 b1 d99",
                0, 1, 4},                                                           // padding
               {HEAD("1", "0") "'a' w0 w0 q0 z d4", 0, 1, 1},                       // a scalar
               {HEAD("2", "0") "'a' w2 q0 q5 w0 q0 " T("b", "0") "z d16", 0, 2, 0}, // nothing, and one at its place
               {HEAD("1", "0") "'a' w1 q0 w8 q0", 0, 1, 0},                         // of no block, without data
               {HEAD("1", "1") "'general.alignment' w4 w8 'a' w1 q3 w0 q0 =xxxxxxx d12", 1, 1, 3},
               {HEAD("0", "4") "'a' w9 w8 q0 'b' w9 w4 q0 'c' w7 b2 'd' w8 q0", 4, 0, -1}, // empty arrays; a bool of 2
               {HEAD("1", "0") "'" X63 "' w1 q4 w0 q0 z d16", 0, 1, -1}};
    GxError err = GX_ZERO;
    GxGguf g;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        put(at("x.gguf"), built, build(odd[i].words, built));
        if (!CHECK(gx_gguf_open(&g, at("x.gguf"), &err) == GX_OK, "%s: %s", odd[i].words, err.message)) {
            gx_error_clear(&err);
            continue;
        }
        const GxGgufTensor *t = gx_gguf_find(&g, "a");
        CHECK(g.keys == odd[i].keys && g.tensors == odd[i].tensors && (t ? t->elements : -1) == odd[i].elements,
              "%s: %d keys, %d tensors", odd[i].words, g.keys, g.tensors);
        gx_gguf_close(&g);
    }
    // a name with a 0 in it is another one than what stands before the 0
    put(at("x.gguf"), built,
        build(HEAD("2", "2") "q2 =k b0 w7 b1 'k' w7 b0 " T("a", "0") "q2 =a b0 w1 q4 w0 q32 z d64", built));
    int b = 1;
    CHECK(gx_gguf_open(&g, at("x.gguf"), &err) == GX_OK, "%s", err.message);
    CHECK(gx_gguf_get_bool(&g, "k", 1, &b, &err) == GX_OK && b == 0, "the key k");
    CHECK(gx_gguf_find(&g, "a")->name_bytes == 1, "the tensor a");
    gx_gguf_close(&g);
    unlink(at("x.gguf"));
}

TEST(types_that_are_known_but_not_decoded_say_so_when_they_are_read)
{
    GxError err = GX_ZERO;
    GxGguf g;
    float x[256];
    put(at("x.gguf"), built, build(HEAD("1", "0") "'a' w1 q256 w13 q0 z d176", built));
    CHECK(gx_gguf_open(&g, at("x.gguf"), &err) == GX_OK, "%s", err.message);
    refused(&err, gx_gguf_read(&g, gx_gguf_find(&g, "a"), 0, 256, x, &err), GX_ERR_UNSUPPORTED,
            "tensor a: Q5_K is not read; supported: F32", "Q5_K");
    refused(&err, gx_gguf_encode(GX_GGUF_Q4_0, x, 1, built, &err), GX_ERR_UNSUPPORTED, "Q4_0 is not written", "Q4_0");
    gx_gguf_close(&g);
    unlink(at("x.gguf"));
}

TEST(a_file_that_is_cut_off_anywhere_is_refused)
{
    GxError err = GX_ZERO;
    GxGguf g;
    char *text;
    int64_t n;
    CHECK(gx_file_read(reference, 1 << 20, &text, &n, &err) == GX_OK, "%s", err.message);
    for (int64_t i = 0; i < n; i += 1 + (i > 2500) * 100) {
        put(at("x.gguf"), text, i);
        const int opened = gx_gguf_open(&g, at("x.gguf"), &err) == GX_OK;
        if (!CHECK(!opened, "%ld of %ld bytes are a whole file", (long)i, (long)n)) gx_gguf_close(&g);
        gx_error_clear(&err);
    }
    free(text);
    unlink(at("x.gguf"));
}

// ---- files of our own ----------------------------------------------------------------------------------------------

static const char *const words[] = {"a", "", "ß"};
static const int32_t numbers[] = {1, -2, 3};
static const float halves[] = {0.5f, -1.5f};
static const int written_types[] = {GX_GGUF_F32, GX_GGUF_F16, GX_GGUF_BF16, GX_GGUF_Q8_0};

static void write_small(GxGgufWriter *w, const char *path, GxError *err)
{
    const int64_t shape[] = {3, 64}, none[] = {0, 64};
    char name[64];
    float x[192];
    gx_gguf_create(w, path, err);
    gx_gguf_set_string(w, "general.architecture", "llama", err);
    gx_gguf_set_int(w, "int", 4294967295, err);
    gx_gguf_set_float(w, "float", 0.1f, err);
    gx_gguf_set_bool(w, "bool", 1, err);
    gx_gguf_set_strings(w, "strings", words, 3, err);
    gx_gguf_set_ints(w, "ints", numbers, 3, err);
    gx_gguf_set_floats(w, "floats", halves, 2, err);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "t%d", i);
        gx_gguf_add(w, name, written_types[i], 2, shape, err);
        if (i == 1) gx_gguf_add(w, "none", GX_GGUF_F32, 2, none, err);
    }
    gx_gguf_add(w, "three", GX_GGUF_F32, 1, shape, err);
    for (int i = 0; i < 192; i++) x[i] = (float)(i - 96) / 128; // exact in fp16 and bf16
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "t%d", i);
        gx_gguf_write(w, name, x, 64, err);
        gx_gguf_write(w, name, x + 64, 128, err);
    }
    gx_gguf_write(w, "three", x, 3, err);
}

TEST(a_file_is_read_as_it_was_written)
{
    GxError err = GX_ZERO;
    GxGgufWriter w;
    GxGguf g;
    int64_t i = 0;
    const GxGgufKey *k = NULL;
    float x[192], block[192];
    unsigned char raw[204];
    write_small(&w, at("x.gguf"), &err);
    CHECK(gx_gguf_finish(&w, &err) == GX_OK, "%s", err.message);
    CHECK(gx_gguf_open(&g, at("x.gguf"), &err) == GX_OK, "%s", err.message);
    CHECK(g.keys == 7 && g.tensors == 6 && g.bytes % 32 == 0, "%d keys, %d tensors, %ld bytes", g.keys, g.tensors,
          (long)g.bytes);
    CHECK(gx_gguf_get_int(&g, "int", 1, &i, &err) == GX_OK && i == 4294967295, "%ld %s", (long)i, err.message);
    gx_gguf_get_array(&g, "strings", 1, GX_GGUF_STRING, &k, &err);
    for (int n = 0; n < 3; n++) CHECK(k && !strcmp(gx_gguf_string_at(&g, k, n, NULL), words[n]), "string %d", n);
    gx_gguf_get_array(&g, "ints", 1, GX_GGUF_INT32, &k, &err);
    for (int n = 0; n < 3; n++) CHECK(gx_gguf_int_at(&g, k, n) == numbers[n], "integer %d", n);
    gx_gguf_get_array(&g, "floats", 1, GX_GGUF_FLOAT32, &k, &err);
    for (int n = 0; n < 2; n++) CHECK(gx_gguf_double_at(&g, k, n) == (double)halves[n], "float %d", n);
    for (int t = 0; t < 4; t++) {
        char name[64];
        int wrong = 0;
        snprintf(name, sizeof name, "t%d", t);
        const GxGgufTensor *tensor = gx_gguf_find(&g, name);
        if (!CHECK(tensor && tensor->shape[0] == 3 && tensor->shape[1] == 64, "tensor %s", name)) continue;
        CHECK(gx_gguf_read(&g, tensor, 0, 192, x, &err) == GX_OK, "%s", err.message);
        for (int n = 0; n < 192; n++) block[n] = (float)(n - 96) / 128;
        if (t == 3)
            gx_gguf_encode(GX_GGUF_Q8_0, block, 6, raw, &err), gx_gguf_decode(GX_GGUF_Q8_0, raw, 6, block, &err);
        for (int n = 0; n < 192; n++) wrong += x[n] != block[n];
        CHECK(wrong == 0, "tensor %s has %d other values", name, wrong);
    }
    gx_gguf_close(&g);
    unlink(at("x.gguf"));
}

TEST(the_writer_refuses_what_is_not_whole_or_cannot_be)
{
    GxError err = GX_ZERO;
    GxGgufWriter w;
    const int64_t shape[] = {2, 32}, odd[] = {2, 33}, less[] = {-1};
    float x[64] = {0};
#define NEW(type)                                                                                                      \
    do {                                                                                                               \
        gx_gguf_create(&w, at("x.gguf"), &err);                                                                        \
        gx_gguf_add(&w, "a", type, 2, shape, &err);                                                                    \
    } while (0)
    NEW(GX_GGUF_F32);
    gx_gguf_write(&w, "a", x, 63, &err);
    refused(&err, gx_gguf_finish(&w, &err), GX_ERR_ARGUMENT, "tensor a was not written whole: 63 of its 64", "a part");
    NEW(GX_GGUF_F32);
    refused(&err, gx_gguf_write(&w, "b", x, 64, &err), GX_ERR_ARGUMENT, "tensor b is written where a is expected", "b");
    refused(&err, gx_gguf_write(&w, "a", x, 65, &err), GX_ERR_ARGUMENT, "65 more elements", "too many");
    CHECK(gx_gguf_write(&w, "a", x, 64, &err) == GX_OK, "%s", err.message);
    refused(&err, gx_gguf_write(&w, "a", x, 0, &err), GX_ERR_ARGUMENT, "where none is expected", "twice");
    refused(&err, gx_gguf_set_int(&w, "late", 1, &err), GX_ERR_ARGUMENT, "after a GGUF file's header", "a late key");
    refused(&err, gx_gguf_add(&w, "late", 0, 2, shape, &err), GX_ERR_ARGUMENT, "after a GGUF file's header", "late");
    gx_gguf_abort(&w);
    NEW(GX_GGUF_Q8_0);
    refused(&err, gx_gguf_write(&w, "a", x, 16, &err), GX_ERR_ARGUMENT, "in blocks of 32", "half a block");
    x[5] = NAN;
    refused(&err, gx_gguf_write(&w, "a", x, 64, &err), GX_ERR_FORMAT, "tensor a: a value is nan, which Q8_0", "NaN");
    x[5] = 127.0f * 65520;
    refused(&err, gx_gguf_write(&w, "a", x, 64, &err), GX_ERR_FORMAT, "which Q8_0 cannot represent", "a large one");
    gx_gguf_abort(&w);
    NEW(GX_GGUF_F16);
    x[5] = 65520;
    refused(&err, gx_gguf_write(&w, "a", x, 64, &err), GX_ERR_FORMAT, "a value is 65520, which F16 cannot represent",
            "F16");
    gx_gguf_abort(&w);
    NEW(GX_GGUF_BF16);
    x[5] = -FLT_MAX;
    refused(&err, gx_gguf_write(&w, "a", x, 64, &err), GX_ERR_FORMAT, "which BF16 cannot represent", "BF16");
    gx_gguf_abort(&w);
    NEW(GX_GGUF_F32);
    gx_gguf_add(&w, "a", GX_GGUF_F32, 2, shape, &err);
    refused(&err, gx_gguf_finish(&w, &err), GX_ERR_ARGUMENT, "tensor a is listed twice", "two of a name");
    NEW(GX_GGUF_F32);
    refused(&err, gx_gguf_add(&w, "b", GX_GGUF_Q8_0, 2, odd, &err), GX_ERR_ARGUMENT, "rows of 33", "rows");
    refused(&err, gx_gguf_add(&w, "b", GX_GGUF_Q4_K, 2, shape, &err), GX_ERR_ARGUMENT, "(Q4_K)", "Q4_K");
    refused(&err, gx_gguf_add(&w, X63 "x", 0, 2, shape, &err), GX_ERR_ARGUMENT, "has 64 bytes", "a long name");
    refused(&err, gx_gguf_add(&w, "b", 0, 1, less, &err), GX_ERR_ARGUMENT, "dimension 0 is -1", "a negative size");
    refused(&err, gx_gguf_set_int(&w, "k", -1, &err), GX_ERR_ARGUMENT, "k is -1", "a negative key");
    refused(&err, gx_gguf_set_int(&w, "", 1, &err), GX_ERR_ARGUMENT, "a name of 0 bytes", "no name");
    gx_gguf_abort(&w);
    refused(&err, gx_gguf_finish(&w, &err), GX_ERR_ARGUMENT, "is not open", "finished twice");
    CHECK(names_in_root() == 0, "a file was left");
}

TEST(a_full_disk_leaves_no_file)
{
    GxError err = GX_ZERO;
    GxGgufWriter w;
    const int64_t shape[] = {20000};
    float *x = (float *)calloc(20000, sizeof *x);
    struct rlimit before, limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 40000;
    gx_gguf_create(&w, at("x.gguf"), &err);
    gx_gguf_add(&w, "a", GX_GGUF_F32, 1, shape, &err);
    setrlimit(RLIMIT_FSIZE, &limit);
    const GxStatus status = gx_gguf_write(&w, "a", x, 20000, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(status == GX_ERR_IO, "%s", gx_status_name(status));
    refused(&err, gx_gguf_finish(&w, &err), GX_ERR_IO, "File too large", "80000 bytes");
    CHECK(names_in_root() == 0, "a file was left");
    free(x);
}

int main(int argc, char **argv)
{
    GxError err = GX_ZERO;
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.500s/test_gguf.XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(root)) {
        printf("cannot make a temporary folder %s\n", root);
        return 1;
    }
    const int failed = test_main(argc, argv);
    if (gx_folder_remove(root, &err) != GX_OK) printf("%s\n", err.message);
    return failed;
}
