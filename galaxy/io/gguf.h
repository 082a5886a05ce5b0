// gguf.h: reads and writes GGUF files (version 3, and reads 2), the format of llama.cpp: one file with a model's
// configuration, its tokenizer and its weights.
//
//     "GGUF" | u32 version | u64 tensors | u64 keys | the keys: name, type, value | the tensors: name, dimensions,
//     type, offset | zeros up to the alignment | data
//
// The reader trusts nothing. It refuses names that are empty, too long or duplicate; lengths and counts beyond the end
// of the file; unknown types; sizes that overflow or are not whole blocks; tensors that do not follow each other; parts
// of a split model; files of the other byte order. Errors name the file, what was found and what was expected. Padding
// need not be zero, and the file may continue after the last tensor, as other readers also allow. Keys are kept in
// memory, at most GX_GGUF_HEADER bytes; data is read in any range and order, as floats whatever its type
// (gguf_blocks.h), so that a tensor need not fit into memory.
//
// Shapes are as in safetensors: [rows, columns], with the elements of the last dimension contiguous. (The file stores
// dimensions in the opposite order.)
//
//     GxGguf g;
//     GX_TRY(gx_gguf_open(&g, "model.gguf", err));
//     int64_t layers = 0;
//     GxStatus status = gx_gguf_get_int(&g, "llama.block_count", 1, &layers, err);
//     const GxGgufTensor *t = gx_gguf_find(&g, "output_norm.weight");                      // NULL: none of that name
//     if (status == GX_OK && t && t->elements == n) status = gx_gguf_read(&g, t, 0, n, weights, err);
//     gx_gguf_close(&g);
//
// The writer takes keys and tensors' names first, then each tensor's values in this order, from its first to its last.
// Errors stay in err: check once. The file gets its name in gx_gguf_finish, if every value was written.
//
//     GxGgufWriter w;
//     gx_gguf_create(&w, "model.gguf", err);
//     gx_gguf_set_string(&w, "general.architecture", "llama", err);
//     gx_gguf_add(&w, "output_norm.weight", GX_GGUF_F32, 1, shape, err);
//     for (…) gx_gguf_write(&w, "output_norm.weight", values, count, err);                // rounds to the type
//     GxStatus status = gx_gguf_finish(&w, err);                                          // after an error: no file
//
// Little-endian hosts only. A writer, and a reader being opened, belong to one thread; reads may come from several.
#ifndef GX_GGUF_H
#define GX_GGUF_H
#include "files.h"
#include "gguf_blocks.h"
GX_BEGIN

enum {
    GX_GGUF_NAME = 64, // of a tensor's name, with the terminating 0
    GX_GGUF_DIMS = 4,
    GX_GGUF_KEY = 65536,     // the most bytes of a key's name
    GX_GGUF_COUNT = 1 << 18, // tensors; keys
    GX_GGUF_HEADER = 1 << 28 // bytes of keys and tensors' names
};

typedef enum { // the types of values, with their numbers in files
    GX_GGUF_UINT8 = 0,
    GX_GGUF_INT8,
    GX_GGUF_UINT16,
    GX_GGUF_INT16,
    GX_GGUF_UINT32,
    GX_GGUF_INT32,
    GX_GGUF_FLOAT32,
    GX_GGUF_BOOL,
    GX_GGUF_STRING,
    GX_GGUF_ARRAY,
    GX_GGUF_UINT64,
    GX_GGUF_INT64,
    GX_GGUF_FLOAT64,
    GX_GGUF_KINDS
} GxGgufKind;

typedef struct {
    int64_t at, bytes; // in GxGguf.text, with a terminating 0
} GxGgufText;
typedef struct {
    GxGgufText name;
    GxGgufKind kind; // for an array: of its items
    int is_array;
    int64_t count;    // items; 1 if it is not an array
    int64_t at;       // numbers: where they begin in GxGguf.text, as in the file
    GxGgufText *item; // [count] strings
} GxGgufKey;

typedef struct {
    char name[GX_GGUF_NAME];
    int name_bytes; // without the 0: other programs allow a 0 in a name
    int type;       // GX_GGUF_F32, …
    int ndim;
    int64_t shape[GX_GGUF_DIMS];
    int64_t elements, bytes;
    int64_t offset; // in the file
} GxGgufTensor;

typedef struct {
    int fd;
    int64_t bytes;
    char path[GX_PATH];
    int64_t version, alignment;
    GxGgufKey *key; // sorted by name
    int keys;
    GxGgufTensor *tensor; // sorted by name
    int tensors;
    char *text; // names and values
    int64_t text_n, text_capacity;
} GxGguf;

GxStatus gx_gguf_open(GxGguf *g, const char *path, GxError *err); // after an error nothing is open
void gx_gguf_close(GxGguf *g);
const GxGgufTensor *gx_gguf_find(const GxGguf *g, const char *name); // NULL: none
const GxGgufKey *gx_gguf_key(const GxGguf *g, const char *name);     // NULL: none

// Elements [first, first + count) of a tensor as floats; and its bytes as they are.
GxStatus gx_gguf_read(const GxGguf *g, const GxGgufTensor *t, int64_t first, int64_t count, float *out, GxError *err);
GxStatus gx_gguf_read_raw(const GxGguf *g, const GxGgufTensor *t, int64_t first, int64_t bytes, void *out,
                          GxError *err);

// Values. Absent: *out is unchanged; an error only if `required`. Another type: an error that names file and key.
// Integers may have any size and must fit; doubles are fp32 or fp64; strings and arrays are borrowed.
GxStatus gx_gguf_get_int(const GxGguf *g, const char *name, int required, int64_t *out, GxError *err);
GxStatus gx_gguf_get_double(const GxGguf *g, const char *name, int required, double *out, GxError *err);
GxStatus gx_gguf_get_bool(const GxGguf *g, const char *name, int required, int *out, GxError *err);
GxStatus gx_gguf_get_string(const GxGguf *g, const char *name, int required, const char **out, GxError *err);
// kind: GX_GGUF_STRING, GX_GGUF_FLOAT32, or GX_GGUF_INT32, which stands for integers of all sizes
GxStatus gx_gguf_get_array(const GxGguf *g, const char *name, int required, GxGgufKind kind, const GxGgufKey **out,
                           GxError *err);
// Item i of an array of this kind.
int64_t gx_gguf_int_at(const GxGguf *g, const GxGgufKey *k, int64_t i); // INT64_MAX for a UINT64 beyond 63 bits
double gx_gguf_double_at(const GxGguf *g, const GxGgufKey *k, int64_t i);
const char *gx_gguf_string_at(const GxGguf *g, const GxGgufKey *k, int64_t i, int64_t *bytes); // bytes may be NULL

typedef struct { // bytes that grow
    char *p;
    int64_t n, capacity;
} GxGgufBytes;
typedef struct {
    GxNewFile file;
    GxGgufBytes keys, infos;
    int64_t n_keys;
    GxGgufTensor *tensor; // in the order of the file; offsets from the first byte of the data
    int tensors, capacity;
    int64_t data_begin, data_end; // data_begin 0: the header is not written yet
    int current;                  // the tensor that is being written
    int64_t written;              // its elements so far
} GxGgufWriter;

GxStatus gx_gguf_create(GxGgufWriter *w, const char *path, GxError *err);
GxStatus gx_gguf_set_int(GxGgufWriter *w, const char *name, int64_t value, GxError *err); // UINT32
GxStatus gx_gguf_set_float(GxGgufWriter *w, const char *name, float value, GxError *err);
GxStatus gx_gguf_set_bool(GxGgufWriter *w, const char *name, int value, GxError *err);
GxStatus gx_gguf_set_string(GxGgufWriter *w, const char *name, const char *value, GxError *err);
GxStatus gx_gguf_set_strings(GxGgufWriter *w, const char *name, const char *const *value, int64_t n, GxError *err);
GxStatus gx_gguf_set_ints(GxGgufWriter *w, const char *name, const int32_t *value, int64_t n, GxError *err);
GxStatus gx_gguf_set_floats(GxGgufWriter *w, const char *name, const float *value, int64_t n, GxError *err);
GxStatus gx_gguf_add(GxGgufWriter *w, const char *name, int type, int ndim, const int64_t *shape, GxError *err);
// Writes the next values of a tensor, in whole blocks
GxStatus gx_gguf_write(GxGgufWriter *w, const char *name, const float *values, int64_t count, GxError *err);
// Closes the writer. An incomplete tensor is an error, and no file is made.
GxStatus gx_gguf_finish(GxGgufWriter *w, GxError *err);
void gx_gguf_abort(GxGgufWriter *w); // leaves nothing behind; does nothing after finish

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_GGUF_IMPLEMENTED)
#define GX_GGUF_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GX__GGUF_WINDOW = 1 << 16, GX__GGUF_ALIGNMENT = 32, GX__GGUF_CHUNK = 1 << 13 }; // bytes; elements at a time
static const char gx__gguf_magic[4] = {'G', 'G', 'U', 'F'};
static const struct {
    const char *name;
    int bytes; // 0: not fixed
} gx__gguf_kinds[GX_GGUF_KINDS] = {{"uint8", 1},  {"int8", 1},    {"uint16", 2}, {"int16", 2},    {"uint32", 4},
                                   {"int32", 4},  {"float32", 4}, {"bool", 1},   {"a string", 0}, {"an array", 0},
                                   {"uint64", 8}, {"int64", 8},   {"float64", 8}};

// ---- reading: the bytes of the header in order ---------------------------------------------------------------------

typedef struct {
    GxGguf *g;
    GxError *err;
    int64_t at; // in the file
    int64_t window_begin, window_n;
    char window[GX__GGUF_WINDOW];
} gx__GgufReading;

static int64_t gx__gguf_left(const gx__GgufReading *r) { return r->g->bytes - r->at; }

// Reads the next bytes; `what` describes them in messages.
static GxStatus gx__gguf_take(gx__GgufReading *r, void *out, int64_t n, const char *what)
{
    char *to = (char *)out;
    if (n > gx__gguf_left(r))
        return GX_FAIL(
            r->err, GX_ERR_FORMAT,
            "%s ends at byte %ld, before the end of %s, which begins at %ld: it is cut off, or not a GGUF file",
            r->g->path, (long)r->g->bytes, what, (long)r->at);
    while (n > 0) {
        const int64_t inside = r->at - r->window_begin;
        if (inside >= r->window_n) {
            r->window_begin = r->at, r->window_n = gx_min(GX__GGUF_WINDOW, gx__gguf_left(r));
            GX_TRY(gx_file_read_at(r->g->fd, r->g->path, r->window, r->window_n, r->at, r->err));
            continue;
        }
        const int64_t some = gx_min(n, r->window_n - inside);
        memcpy(to, r->window + inside, (size_t)some);
        to += some, n -= some, r->at += some;
    }
    return GX_OK;
}

static GxStatus gx__gguf_take_u32(gx__GgufReading *r, uint32_t *out, const char *what)
{
    return gx__gguf_take(r, out, 4, what);
}
static GxStatus gx__gguf_take_u64(gx__GgufReading *r, uint64_t *out, const char *what)
{
    return gx__gguf_take(r, out, 8, what);
}

// Reads the next n bytes to g->text, with a terminating 0. *at: their position there.
static GxStatus gx__gguf_keep(gx__GgufReading *r, int64_t n, int64_t *at, const char *what)
{
    GxGguf *g = r->g;
    if (n > GX_GGUF_HEADER - g->text_n - 1)
        return GX_FAIL(r->err, GX_ERR_FORMAT,
                       "%s: its names and values have more than %d bytes, at %s; that is the most that is read",
                       g->path, GX_GGUF_HEADER, what);
    if (g->text_n + n + 1 > g->text_capacity) {
        const int64_t capacity = gx_max(g->text_n + n + 1, 2 * g->text_capacity);
        char *grown = (char *)realloc(g->text, (size_t)capacity);
        if (!grown) return GX_FAIL(r->err, GX_ERR_MEMORY, "no memory for the keys of %s", g->path);
        g->text = grown, g->text_capacity = capacity;
    }
    *at = g->text_n;
    GX_TRY(gx__gguf_take(r, g->text + g->text_n, n, what));
    g->text_n += n;
    g->text[g->text_n++] = 0;
    return GX_OK;
}

static GxStatus gx__gguf_take_text(gx__GgufReading *r, GxGgufText *out, const char *what)
{
    uint64_t n;
    GX_TRY(gx__gguf_take_u64(r, &n, what));
    if (n > (uint64_t)gx__gguf_left(r))
        return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: %s has %llu bytes, at %ld; the file has %ld left", r->g->path, what,
                       (unsigned long long)n, (long)r->at, (long)gx__gguf_left(r));
    out->bytes = (int64_t)n;
    return gx__gguf_keep(r, out->bytes, &out->at, what);
}

// ---- reading: keys -------------------------------------------------------------------------------------------------

static const char *gx__gguf_key_name(const GxGguf *g, const GxGgufKey *k) { return g->text + k->name.at; }

static GxStatus gx__gguf_take_kind(gx__GgufReading *r, GxGgufKind *kind, const char *name)
{
    uint32_t number;
    GX_TRY(gx__gguf_take_u32(r, &number, "a value's type"));
    if (number >= GX_GGUF_KINDS)
        return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: the key %.100s has values of the type %lu; types are 0 to %d",
                       r->g->path, name, (unsigned long)number, GX_GGUF_KINDS - 1);
    *kind = (GxGgufKind)number;
    return GX_OK;
}

// Reads the items of an array, or the single value. Each string takes at least the bytes of its length.
static GxStatus gx__gguf_take_items(gx__GgufReading *r, GxGgufKey *k, uint64_t count, const char *what)
{
    const int bytes = gx__gguf_kinds[k->kind].bytes, least = bytes ? bytes : 8;
    if (count > (uint64_t)gx__gguf_left(r) / (uint64_t)least)
        return GX_FAIL(r->err, GX_ERR_FORMAT,
                       "%s: %s has an item count of %llu (type: %s); bytes left in the file: %ld", r->g->path, what,
                       (unsigned long long)count, gx__gguf_kinds[k->kind].name, (long)gx__gguf_left(r));
    k->count = (int64_t)count;
    if (bytes) return gx__gguf_keep(r, k->count * bytes, &k->at, what);
    if (k->count > GX_GGUF_HEADER / 8)
        return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: %s has %ld strings; at most %d are read", r->g->path, what,
                       (long)k->count, GX_GGUF_HEADER / 8);
    k->item = (GxGgufText *)malloc((size_t)(k->count + 1) * sizeof *k->item);
    if (!k->item) return GX_FAIL(r->err, GX_ERR_MEMORY, "%s: no memory for %ld strings", r->g->path, (long)k->count);
    for (int64_t i = 0; i < k->count; i++) GX_TRY(gx__gguf_take_text(r, &k->item[i], what));
    return GX_OK;
}

static GxStatus gx__gguf_take_key(gx__GgufReading *r, GxGgufKey *k)
{
    char what[GX_TEXT_VALUE + 16], cut[GX_TEXT_VALUE];
    uint64_t count = 1;
    GX_TRY(gx__gguf_take_text(r, &k->name, "a key's name"));
    if (k->name.bytes < 1 || k->name.bytes >= GX_GGUF_KEY)
        return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: a key's name has %ld bytes; 1 to %d are read", r->g->path,
                       (long)k->name.bytes, GX_GGUF_KEY - 1);
    gx_text_cut(gx__gguf_key_name(r->g, k), cut, sizeof cut);
    snprintf(what, sizeof what, "the key %s", cut);
    GX_TRY(gx__gguf_take_kind(r, &k->kind, cut));
    k->is_array = k->kind == GX_GGUF_ARRAY;
    if (k->is_array) {
        GX_TRY(gx__gguf_take_kind(r, &k->kind, cut));
        if (k->kind == GX_GGUF_ARRAY)
            return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: %s is an array of arrays; items are numbers or strings",
                           r->g->path, what);
        GX_TRY(gx__gguf_take_u64(r, &count, what));
    }
    return gx__gguf_take_items(r, k, count, what);
}

static int gx__gguf_compare(const char *a, int64_t a_n, const char *b, int64_t b_n)
{
    const int order = memcmp(a, b, (size_t)gx_min(a_n, b_n));
    return order ? order : a_n < b_n ? -1 : a_n > b_n;
}

// A heap sort, since names are in g->text, and qsort passes no context.
static int gx__gguf_key_before(const GxGguf *g, const GxGgufKey *a, const GxGgufKey *b)
{
    return gx__gguf_compare(g->text + a->name.at, a->name.bytes, g->text + b->name.at, b->name.bytes) < 0;
}
static void gx__gguf_sift(GxGguf *g, int64_t i, int64_t n)
{
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && gx__gguf_key_before(g, &g->key[child], &g->key[child + 1])) child++;
        if (!gx__gguf_key_before(g, &g->key[i], &g->key[child])) return;
        const GxGgufKey other = g->key[i];
        g->key[i] = g->key[child], g->key[child] = other;
    }
}
static void gx__gguf_sort_keys(GxGguf *g)
{
    for (int64_t i = g->keys / 2 - 1; i >= 0; i--) gx__gguf_sift(g, i, g->keys);
    for (int64_t n = g->keys - 1; n > 0; n--) {
        const GxGgufKey last = g->key[n];
        g->key[n] = g->key[0], g->key[0] = last;
        gx__gguf_sift(g, 0, n);
    }
}

// Allocates room for `count` items that take at least `least` bytes of the file each.
static GxStatus gx__gguf_reserve(gx__GgufReading *r, uint64_t count, int least, size_t size, void **room,
                                 const char *what)
{
    if (count > (uint64_t)gx__gguf_left(r) / (uint64_t)least || count > GX_GGUF_COUNT)
        return GX_FAIL(
            r->err, GX_ERR_FORMAT,
            "%s: the number of %s is %llu, but the file has %ld bytes left for them, and at most %d are read",
            r->g->path, what, (unsigned long long)count, (long)gx__gguf_left(r), GX_GGUF_COUNT);
    *room = calloc((size_t)count + 1, size);
    return *room ? GX_OK : GX_FAIL(r->err, GX_ERR_MEMORY, "%s: no memory for its %s", r->g->path, what);
}

static GxStatus gx__gguf_take_keys(gx__GgufReading *r, uint64_t count)
{
    GxGguf *g = r->g;
    int64_t parts = 1;
    void *room = NULL;
    GX_TRY(gx__gguf_reserve(r, count, 14, sizeof *g->key, &room, "keys"));
    g->key = (GxGgufKey *)room;
    while (g->keys < (int)count) GX_TRY(gx__gguf_take_key(r, &g->key[g->keys++]));
    gx__gguf_sort_keys(g);
    for (int i = 1; i < g->keys; i++)
        if (!gx__gguf_key_before(g, &g->key[i - 1], &g->key[i]))
            return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: it has the key %.200s twice", g->path,
                           gx__gguf_key_name(g, &g->key[i]));
    GX_TRY(gx_gguf_get_int(g, "split.count", 0, &parts, r->err));
    if (parts > 1)
        return GX_FAIL(r->err, GX_ERR_UNSUPPORTED,
                       "%s is one of %ld parts of a model (split.count); join them first (llama-gguf-split --merge)",
                       g->path, (long)parts);
    return GX_OK;
}

static GxStatus gx__gguf_take_alignment(gx__GgufReading *r)
{
    GxGguf *g = r->g;
    const GxGgufKey *k = gx_gguf_key(g, "general.alignment");
    g->alignment = GX__GGUF_ALIGNMENT;
    if (!k) return GX_OK;
    if (k->kind != GX_GGUF_UINT32 || k->is_array)
        return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: general.alignment is %s%s; expected uint32", g->path,
                       k->is_array ? "an array of " : "", gx__gguf_kinds[k->kind].name);
    g->alignment = gx_gguf_int_at(g, k, 0);
    if (g->alignment > 0 && (g->alignment & (g->alignment - 1)) == 0) return GX_OK;
    return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: general.alignment is %ld; expected a power of two", g->path,
                   (long)g->alignment);
}

// ---- reading: tensors ----------------------------------------------------------------------------------------------

#define GX__GGUF_FAIL(r, t, format, ...)                                                                               \
    GX_FAIL((r)->err, GX_ERR_FORMAT, "%s: tensor %s: " format, (r)->g->path, (t)->name, __VA_ARGS__)

static GxStatus gx__gguf_take_tensor_name(gx__GgufReading *r, GxGgufTensor *t)
{
    uint64_t n;
    GX_TRY(gx__gguf_take_u64(r, &n, "a tensor's name"));
    if (n >= GX_GGUF_NAME)
        return GX_FAIL(r->err, GX_ERR_FORMAT, "%s: the name of tensor number %d has %llu bytes; at most %d are read",
                       r->g->path, r->g->tensors, (unsigned long long)n, GX_GGUF_NAME - 1);
    t->name_bytes = (int)n;
    return gx__gguf_take(r, t->name, (int64_t)n, "a tensor's name");
}

static GxStatus gx__gguf_take_shape(gx__GgufReading *r, GxGgufTensor *t)
{
    uint32_t ndim;
    GX_TRY(gx__gguf_take_u32(r, &ndim, "a tensor's number of dimensions"));
    if (ndim > GX_GGUF_DIMS)
        return GX__GGUF_FAIL(r, t, "it has %lu dimensions; at most %d are read", (unsigned long)ndim, GX_GGUF_DIMS);
    t->ndim = (int)ndim;
    for (int d = t->ndim - 1; d >= 0; d--) {
        uint64_t size;
        GX_TRY(gx__gguf_take_u64(r, &size, "a tensor's shape"));
        if (size > INT64_MAX)
            return GX__GGUF_FAIL(r, t, "dimension %d is %llu; at most 2^63 - 1 is supported", d,
                                 (unsigned long long)size);
        t->shape[d] = (int64_t)size;
    }
    return GX_OK;
}

// Computes elements and bytes; 0: they overflow. A dimension of 0 does not hide an overflow of the others.
static int gx__gguf_measure(GxGgufTensor *t, const GxGgufType *type)
{
    int64_t product = 1;
    int empty = 0;
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 0) empty = 1;
        else if (__builtin_mul_overflow(product, t->shape[d], &product)) return 0;
    }
    t->elements = empty ? 0 : product;
    if (__builtin_mul_overflow(product / type->elements, (int64_t)type->bytes, &product)) return 0;
    t->bytes = empty ? 0 : product;
    return 1;
}

static GxStatus gx__gguf_take_tensor(gx__GgufReading *r, GxGgufTensor *t)
{
    uint32_t number;
    uint64_t offset;
    GX_TRY(gx__gguf_take_tensor_name(r, t));
    GX_TRY(gx__gguf_take_shape(r, t));
    GX_TRY(gx__gguf_take_u32(r, &number, "a tensor's type"));
    const GxGgufType *type = gx_gguf_type(number);
    if (!type) return GX__GGUF_FAIL(r, t, "the type %lu is not known", (unsigned long)number);
    t->type = type->type;
    const int64_t row = t->ndim ? t->shape[t->ndim - 1] : 1;
    if (row % type->elements)
        return GX__GGUF_FAIL(r, t, "rows of %ld elements; %s has blocks of %d", (long)row, type->name, type->elements);
    if (!gx__gguf_measure(t, type)) return GX__GGUF_FAIL(r, t, "%s", "the size of its shape does not fit into 64 bits");
    GX_TRY(gx__gguf_take_u64(r, &offset, "a tensor's offset"));
    if (offset > INT64_MAX)
        return GX__GGUF_FAIL(r, t, "it begins at byte %llu of the data; at most 2^63 - 1 is supported",
                             (unsigned long long)offset);
    t->offset = (int64_t)offset;
    return GX_OK;
}

// Tensors must follow each other, each at the next multiple of the alignment; the file may end with the last one's
// bytes.
static GxStatus gx__gguf_place_tensors(gx__GgufReading *r)
{
    GxGguf *g = r->g;
    const int64_t data = gx_round_up(r->at, g->alignment), room = gx_max(0, g->bytes - data);
    int64_t at = 0;
    for (int i = 0; i < g->tensors; i++) {
        GxGgufTensor *t = &g->tensor[i];
        if (t->offset != at)
            return GX__GGUF_FAIL(r, t, "it begins at byte %ld of the data; expected %ld, after the one before it",
                                 (long)t->offset, (long)at);
        if (at > room || t->bytes > room - at)
            return GX__GGUF_FAIL(r, t,
                                 "it has %ld bytes, from byte %ld of the data on, but the file has %ld: it is cut off",
                                 (long)t->bytes, (long)at, (long)room);
        t->offset += data;
        at = gx_round_up(at + t->bytes, g->alignment);
    }
    return GX_OK;
}

static int gx__gguf_by_name(const void *a, const void *b)
{
    const GxGgufTensor *x = (const GxGgufTensor *)a, *y = (const GxGgufTensor *)b;
    return gx__gguf_compare(x->name, x->name_bytes, y->name, y->name_bytes);
}

static GxStatus gx__gguf_take_tensors(gx__GgufReading *r, uint64_t count)
{
    GxGguf *g = r->g;
    void *room = NULL;
    GX_TRY(gx__gguf_reserve(r, count, 24, sizeof *g->tensor, &room, "tensors"));
    g->tensor = (GxGgufTensor *)room;
    for (; g->tensors < (int)count; g->tensors++) GX_TRY(gx__gguf_take_tensor(r, &g->tensor[g->tensors]));
    GX_TRY(gx__gguf_place_tensors(r));
    if (g->tensors) qsort(g->tensor, (size_t)g->tensors, sizeof *g->tensor, gx__gguf_by_name);
    for (int i = 1; i < g->tensors; i++)
        if (!gx__gguf_by_name(&g->tensor[i - 1], &g->tensor[i]))
            return GX__GGUF_FAIL(r, &g->tensor[i], "%s", "two tensors have this name");
    return GX_OK;
}

// ---- opening -------------------------------------------------------------------------------------------------------

static GxStatus gx__gguf_take_version(gx__GgufReading *r)
{
    char magic[4];
    uint32_t version;
    GX_TRY(gx__gguf_take(r, magic, 4, "the first four bytes"));
    if (memcmp(magic, gx__gguf_magic, 4))
        return GX_FAIL(r->err, GX_ERR_FORMAT, "%s is not a GGUF file: it does not begin with \"GGUF\"", r->g->path);
    GX_TRY(gx__gguf_take_u32(r, &version, "the version"));
    r->g->version = version;
    if (version == 2 || version == 3) return GX_OK;
    if (version << 16 == 0 && version >> 24)
        return GX_FAIL(r->err, GX_ERR_UNSUPPORTED,
                       "%s is a GGUF file for big-endian processors; only little-endian files are supported",
                       r->g->path);
    return GX_FAIL(r->err, GX_ERR_UNSUPPORTED, "%s has version %lu of the format; versions 2 and 3 are supported",
                   r->g->path, (unsigned long)version);
}

static GxStatus gx__gguf_read_header(gx__GgufReading *r)
{
    uint64_t tensors, keys;
    GX_TRY(gx__gguf_take_version(r));
    GX_TRY(gx__gguf_take_u64(r, &tensors, "the number of tensors"));
    GX_TRY(gx__gguf_take_u64(r, &keys, "the number of keys"));
    GX_TRY(gx__gguf_take_keys(r, keys));
    GX_TRY(gx__gguf_take_alignment(r));
    return gx__gguf_take_tensors(r, tensors);
}

GxStatus gx_gguf_open(GxGguf *g, const char *path, GxError *err)
{
    memset(g, 0, sizeof *g);
    g->fd = -1;
    if (snprintf(g->path, GX_PATH, "%s", path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    gx__GgufReading *r = (gx__GgufReading *)calloc(1, sizeof *r);
    if (!r) return GX_FAIL(err, GX_ERR_MEMORY, "no memory to read %s", path);
    r->g = g, r->err = err;
    GxStatus status = gx_file_open(path, &g->fd, &g->bytes, err);
    if (status == GX_OK) status = gx__gguf_read_header(r);
    free(r);
    if (status != GX_OK) gx_gguf_close(g);
    return status;
}

void gx_gguf_close(GxGguf *g)
{
    if (g->fd >= 0) close(g->fd);
    for (int i = 0; i < g->keys; i++) free(g->key[i].item);
    free(g->key);
    free(g->tensor);
    free(g->text);
    memset(g, 0, sizeof *g);
    g->fd = -1;
}

// ---- values --------------------------------------------------------------------------------------------------------

const GxGgufTensor *gx_gguf_find(const GxGguf *g, const char *name)
{
    int low = 0, high = g->tensors;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const GxGgufTensor *t = &g->tensor[middle];
        const int order = gx__gguf_compare(name, (int64_t)strlen(name), t->name, t->name_bytes);
        if (order == 0) return t;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

const GxGgufKey *gx_gguf_key(const GxGguf *g, const char *name)
{
    int low = 0, high = g->keys;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const GxGgufKey *k = &g->key[middle];
        const int order = gx__gguf_compare(name, (int64_t)strlen(name), gx__gguf_key_name(g, k), k->name.bytes);
        if (order == 0) return k;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

int64_t gx_gguf_int_at(const GxGguf *g, const GxGgufKey *k, int64_t i)
{
    const int bytes = gx__gguf_kinds[k->kind].bytes;
    const int is_signed = k->kind == GX_GGUF_INT8 || k->kind == GX_GGUF_INT16 || k->kind == GX_GGUF_INT32;
    uint64_t x = 0;
    memcpy(&x, g->text + k->at + i * bytes, (size_t)bytes);
    if (is_signed && x >> (8 * bytes - 1)) x |= ~UINT64_C(0) << (8 * bytes - 1);
    return k->kind == GX_GGUF_UINT64 && x > INT64_MAX ? INT64_MAX : (int64_t)x;
}

double gx_gguf_double_at(const GxGguf *g, const GxGgufKey *k, int64_t i)
{
    float narrow;
    double x;
    if (k->kind == GX_GGUF_FLOAT32) return memcpy(&narrow, g->text + k->at + 4 * i, 4), (double)narrow;
    memcpy(&x, g->text + k->at + 8 * i, 8);
    return x;
}

const char *gx_gguf_string_at(const GxGguf *g, const GxGgufKey *k, int64_t i, int64_t *bytes)
{
    if (bytes) *bytes = k->item[i].bytes;
    return g->text + k->item[i].at;
}

static int gx__gguf_is_int(GxGgufKind kind)
{
    return kind <= GX_GGUF_INT32 || kind == GX_GGUF_UINT64 || kind == GX_GGUF_INT64;
}

// *k: the key, NULL if there is none. fits: tells whether its kind is acceptable.
static GxStatus gx__gguf_get(const GxGguf *g, const char *name, int required, int is_array, int (*fits)(GxGgufKind),
                             const char *expected, const GxGgufKey **k, GxError *err)
{
    *k = gx_gguf_key(g, name);
    if (!*k && required) return GX_FAIL(err, GX_ERR_FORMAT, "%s: the key %s is missing", g->path, name);
    if (!*k || ((*k)->is_array == is_array && fits((*k)->kind))) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: the key %s is %s%s; expected %s%s", g->path, name,
                   (*k)->is_array ? "an array of " : "", gx__gguf_kinds[(*k)->kind].name,
                   is_array ? "an array of " : "", expected);
}

static int gx__gguf_is_double(GxGgufKind kind) { return kind == GX_GGUF_FLOAT32 || kind == GX_GGUF_FLOAT64; }
static int gx__gguf_is_bool(GxGgufKind kind) { return kind == GX_GGUF_BOOL; }
static int gx__gguf_is_string(GxGgufKind kind) { return kind == GX_GGUF_STRING; }

GxStatus gx_gguf_get_int(const GxGguf *g, const char *name, int required, int64_t *out, GxError *err)
{
    const GxGgufKey *k = NULL;
    GX_TRY(gx__gguf_get(g, name, required, 0, gx__gguf_is_int, "an integer", &k, err));
    if (!k) return GX_OK;
    *out = gx_gguf_int_at(g, k, 0);
    if (k->kind == GX_GGUF_UINT64 && *out == INT64_MAX)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the key %s is above 2^63 - 2, the most that is supported", g->path,
                       name);
    return GX_OK;
}

GxStatus gx_gguf_get_double(const GxGguf *g, const char *name, int required, double *out, GxError *err)
{
    const GxGgufKey *k = NULL;
    GX_TRY(gx__gguf_get(g, name, required, 0, gx__gguf_is_double, "a float", &k, err));
    if (k) *out = gx_gguf_double_at(g, k, 0);
    return GX_OK;
}

GxStatus gx_gguf_get_bool(const GxGguf *g, const char *name, int required, int *out, GxError *err)
{
    const GxGgufKey *k = NULL;
    GX_TRY(gx__gguf_get(g, name, required, 0, gx__gguf_is_bool, "a bool", &k, err));
    if (k) *out = g->text[k->at] != 0;
    return GX_OK;
}

GxStatus gx_gguf_get_string(const GxGguf *g, const char *name, int required, const char **out, GxError *err)
{
    const GxGgufKey *k = NULL;
    GX_TRY(gx__gguf_get(g, name, required, 0, gx__gguf_is_string, "a string", &k, err));
    if (k) *out = gx_gguf_string_at(g, k, 0, NULL);
    return GX_OK;
}

GxStatus gx_gguf_get_array(const GxGguf *g, const char *name, int required, GxGgufKind kind, const GxGgufKey **out,
                           GxError *err)
{
    const GxGgufKey *k = NULL;
    GX_TRY(gx__gguf_get(g, name, required, 1,
                        kind == GX_GGUF_STRING    ? gx__gguf_is_string
                        : kind == GX_GGUF_FLOAT32 ? gx__gguf_is_double
                                                  : gx__gguf_is_int,
                        kind == GX_GGUF_STRING    ? "strings"
                        : kind == GX_GGUF_FLOAT32 ? "floats"
                                                  : "integers",
                        &k, err));
    if (k) *out = k;
    return GX_OK;
}

// ---- data ----------------------------------------------------------------------------------------------------------

static GxStatus gx__gguf_check_range(const GxGguf *g, const GxGgufTensor *t, int64_t first, int64_t count, int64_t most,
                                     const char *what, GxError *err)
{
    if (first >= 0 && count >= 0 && first <= most && count <= most - first) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: tensor %s: %ld %s from number %ld on are requested, but it has %ld",
                   g->path, t->name, (long)count, what, (long)first, (long)most);
}

GxStatus gx_gguf_read_raw(const GxGguf *g, const GxGgufTensor *t, int64_t first, int64_t bytes, void *out, GxError *err)
{
    GX_TRY(gx__gguf_check_range(g, t, first, bytes, t->bytes, "bytes", err));
    return gx_file_read_at(g->fd, g->path, out, bytes, t->offset + first, err);
}

GxStatus gx_gguf_read(const GxGguf *g, const GxGgufTensor *t, int64_t first, int64_t count, float *out, GxError *err)
{
    const GxGgufType *type = gx_gguf_type(t->type);
    unsigned char raw[GX__GGUF_CHUNK * 4];
    float values[GX__GGUF_CHUNK];
    GX_TRY(gx__gguf_check_range(g, t, first, count, t->elements, "elements", err));
    if (!gx_gguf_decodes(t->type)) {
        GxError why = GX_ZERO;
        gx_gguf_decode(t->type, raw, 0, values, &why);
        return GX_FAIL(err, GX_ERR_UNSUPPORTED, "%s: tensor %s: %s", g->path, t->name, why.message);
    }
    while (count > 0) { // decodes whole blocks around the range
        const int64_t before = first % type->elements, n = gx_min(count, GX__GGUF_CHUNK - before),
                      blocks = (before + n + type->elements - 1) / type->elements;
        GX_TRY(gx_gguf_read_raw(g, t, first / type->elements * type->bytes, blocks * type->bytes, raw, err));
        GX_TRY(gx_gguf_decode(t->type, raw, blocks, values, err));
        memcpy(out, values + before, (size_t)n * sizeof *out);
        first += n, count -= n, out += n;
    }
    return GX_OK;
}

// ---- writing -------------------------------------------------------------------------------------------------------

static GxStatus gx__gguf_put(GxGgufBytes *b, const void *data, int64_t n, GxError *err)
{
    GX_TRY(gx_error_code(err));
    if (b->n + n > b->capacity) {
        const int64_t capacity = gx_max(b->n + n, 2 * b->capacity);
        char *grown = (char *)realloc(b->p, (size_t)capacity);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the header of a GGUF file");
        b->p = grown, b->capacity = capacity;
    }
    if (n) memcpy(b->p + b->n, data, (size_t)n);
    b->n += n;
    return GX_OK;
}
static void gx__gguf_put_u32(GxGgufBytes *b, uint32_t x, GxError *err) { gx__gguf_put(b, &x, 4, err); }
static void gx__gguf_put_u64(GxGgufBytes *b, uint64_t x, GxError *err) { gx__gguf_put(b, &x, 8, err); }
static void gx__gguf_put_text(GxGgufBytes *b, const char *text, GxError *err)
{
    gx__gguf_put_u64(b, strlen(text), err);
    gx__gguf_put(b, text, (int64_t)strlen(text), err);
}

GxStatus gx_gguf_create(GxGgufWriter *w, const char *path, GxError *err)
{
    memset(w, 0, sizeof *w);
    return gx_file_create(&w->file, path, err);
}

// Writes the beginning of a key; its value follows.
static GxStatus gx__gguf_new_key(GxGgufWriter *w, const char *name, GxGgufKind kind, int64_t array, GxError *err)
{
    if (!w->file.is_open || w->data_begin)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the key %.100s comes after a GGUF file's header, or without a file",
                       name);
    if (!name[0] || strlen(name) >= GX_GGUF_KEY)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: a key has a name of %ld bytes; 1 to %d are possible", w->file.path,
                       (long)strlen(name), GX_GGUF_KEY - 1);
    w->n_keys++;
    gx__gguf_put_text(&w->keys, name, err);
    if (array >= 0) gx__gguf_put_u32(&w->keys, GX_GGUF_ARRAY, err);
    gx__gguf_put_u32(&w->keys, kind, err);
    if (array >= 0) gx__gguf_put_u64(&w->keys, (uint64_t)array, err);
    return gx_error_code(err);
}

GxStatus gx_gguf_set_int(GxGgufWriter *w, const char *name, int64_t value, GxError *err)
{
    if (value < 0 || value > UINT32_MAX)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: %s is %ld; a GGUF file has 0 to 4294967295 there", w->file.path, name,
                       (long)value);
    GX_TRY(gx__gguf_new_key(w, name, GX_GGUF_UINT32, -1, err));
    gx__gguf_put_u32(&w->keys, (uint32_t)value, err);
    return gx_error_code(err);
}
GxStatus gx_gguf_set_float(GxGgufWriter *w, const char *name, float value, GxError *err)
{
    GX_TRY(gx__gguf_new_key(w, name, GX_GGUF_FLOAT32, -1, err));
    return gx__gguf_put(&w->keys, &value, 4, err);
}
GxStatus gx_gguf_set_bool(GxGgufWriter *w, const char *name, int value, GxError *err)
{
    const char byte = value != 0;
    GX_TRY(gx__gguf_new_key(w, name, GX_GGUF_BOOL, -1, err));
    return gx__gguf_put(&w->keys, &byte, 1, err);
}
GxStatus gx_gguf_set_string(GxGgufWriter *w, const char *name, const char *value, GxError *err)
{
    GX_TRY(gx__gguf_new_key(w, name, GX_GGUF_STRING, -1, err));
    gx__gguf_put_text(&w->keys, value, err);
    return gx_error_code(err);
}
GxStatus gx_gguf_set_strings(GxGgufWriter *w, const char *name, const char *const *value, int64_t n, GxError *err)
{
    GX_TRY(gx__gguf_new_key(w, name, GX_GGUF_STRING, n, err));
    for (int64_t i = 0; i < n; i++) gx__gguf_put_text(&w->keys, value[i], err);
    return gx_error_code(err);
}
GxStatus gx_gguf_set_ints(GxGgufWriter *w, const char *name, const int32_t *value, int64_t n, GxError *err)
{
    GX_TRY(gx__gguf_new_key(w, name, GX_GGUF_INT32, n, err));
    return gx__gguf_put(&w->keys, value, 4 * n, err);
}
GxStatus gx_gguf_set_floats(GxGgufWriter *w, const char *name, const float *value, int64_t n, GxError *err)
{
    GX_TRY(gx__gguf_new_key(w, name, GX_GGUF_FLOAT32, n, err));
    return gx__gguf_put(&w->keys, value, 4 * n, err);
}

static GxStatus gx__gguf_check_new(const GxGgufWriter *w, const char *name, int type, int ndim, const int64_t *shape,
                                   GxError *err)
{
    const GxGgufType *of = gx_gguf_type(type);
    if (!w->file.is_open || w->data_begin || w->tensors == GX_GGUF_COUNT)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "tensor %.100s comes after a GGUF file's header, without a file, or is one more than %d", name,
                       GX_GGUF_COUNT);
    if (!name[0] || strlen(name) >= GX_GGUF_NAME)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: the name %.100s has %ld bytes; 1 to %d are possible", w->file.path,
                       name, (long)strlen(name), GX_GGUF_NAME - 1);
    if (!gx_gguf_encodes(type) || ndim < 1 || ndim > GX_GGUF_DIMS)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s: tensor %s has %d dimensions and the type %d (%s); 1 to %d, of F32, F16, BF16 and Q8_0, can "
                       "be written",
                       w->file.path, name, ndim, type, of ? of->name : "unknown", GX_GGUF_DIMS);
    for (int d = 0; d < ndim; d++)
        if (shape[d] < 0)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: tensor %s: dimension %d is %ld", w->file.path, name, d,
                           (long)shape[d]);
    if (shape[ndim - 1] % of->elements)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: tensor %s has rows of %ld elements; %s has blocks of %d",
                       w->file.path, name, (long)shape[ndim - 1], of->name, of->elements);
    return GX_OK;
}

GxStatus gx_gguf_add(GxGgufWriter *w, const char *name, int type, int ndim, const int64_t *shape, GxError *err)
{
    GX_TRY(gx__gguf_check_new(w, name, type, ndim, shape, err));
    if (w->tensors == w->capacity) {
        const int capacity = 2 * w->capacity + 16;
        GxGgufTensor *grown = (GxGgufTensor *)realloc(w->tensor, (size_t)capacity * sizeof *grown);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", capacity);
        w->tensor = grown, w->capacity = capacity;
    }
    GxGgufTensor *t = &w->tensor[w->tensors];
    memset(t, 0, sizeof *t);
    t->name_bytes = snprintf(t->name, sizeof t->name, "%s", name);
    t->type = type, t->ndim = ndim, t->offset = w->data_end;
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    if (!gx__gguf_measure(t, gx_gguf_type(type)) || t->bytes > INT64_MAX / 2 - w->data_end)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: with tensor %s sizes do not fit into 64 bits", w->file.path, name);
    w->data_end = gx_round_up(w->data_end + t->bytes, GX__GGUF_ALIGNMENT);
    w->tensors++;
    gx__gguf_put_text(&w->infos, name, err);
    gx__gguf_put_u32(&w->infos, (uint32_t)ndim, err);
    for (int d = ndim - 1; d >= 0; d--) gx__gguf_put_u64(&w->infos, (uint64_t)shape[d], err);
    gx__gguf_put_u32(&w->infos, (uint32_t)type, err);
    gx__gguf_put_u64(&w->infos, (uint64_t)t->offset, err);
    return gx_error_code(err);
}

static GxStatus gx__gguf_check_names(const GxGgufWriter *w, GxError *err)
{
    GxGgufTensor *sorted = (GxGgufTensor *)malloc((size_t)(w->tensors + 1) * sizeof *sorted);
    if (!sorted) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of %d tensors", w->tensors);
    if (w->tensors) memcpy(sorted, w->tensor, (size_t)w->tensors * sizeof *sorted);
    if (w->tensors) qsort(sorted, (size_t)w->tensors, sizeof *sorted, gx__gguf_by_name);
    for (int i = 1; i < w->tensors; i++)
        if (!gx__gguf_by_name(&sorted[i - 1], &sorted[i]))
            GX_FAIL(err, GX_ERR_ARGUMENT, "%s: tensor %s is listed twice", w->file.path, sorted[i].name);
    free(sorted);
    return gx_error_code(err);
}

// magic, version, counts; keys; tensors; zeros up to the data.
static GxStatus gx__gguf_write_header(GxGgufWriter *w, GxError *err)
{
    static const char zeros[GX__GGUF_ALIGNMENT] = GX_ZERO;
    GxGgufBytes all = GX_ZERO;
    GX_TRY(gx__gguf_check_names(w, err));
    gx__gguf_put(&all, gx__gguf_magic, 4, err);
    gx__gguf_put_u32(&all, 3, err);
    gx__gguf_put_u64(&all, (uint64_t)w->tensors, err);
    gx__gguf_put_u64(&all, (uint64_t)w->n_keys, err);
    gx__gguf_put(&all, w->keys.p, w->keys.n, err);
    gx__gguf_put(&all, w->infos.p, w->infos.n, err);
    gx__gguf_put(&all, zeros, gx_round_up(all.n, GX__GGUF_ALIGNMENT) - all.n, err);
    if (gx_error_code(err) == GX_OK) gx_file_write_at(w->file.fd, w->file.path, all.p, all.n, 0, err);
    w->data_begin = all.n;
    free(all.p);
    return gx_error_code(err);
}

// After the last value of a tensor: zeros up to the beginning of the next one.
static GxStatus gx__gguf_pad(GxGgufWriter *w, GxError *err)
{
    static const char zeros[GX__GGUF_ALIGNMENT] = GX_ZERO;
    while (w->current < w->tensors && w->written == w->tensor[w->current].elements) {
        const GxGgufTensor *t = &w->tensor[w->current];
        const int64_t n = gx_round_up(t->bytes, GX__GGUF_ALIGNMENT) - t->bytes;
        GX_TRY(gx_file_write_at(w->file.fd, w->file.path, zeros, n, w->data_begin + t->offset + t->bytes, err));
        w->current++, w->written = 0;
    }
    return GX_OK;
}

GxStatus gx_gguf_write(GxGgufWriter *w, const char *name, const float *values, int64_t count, GxError *err)
{
    unsigned char raw[GX__GGUF_CHUNK * 4];
    GX_TRY(gx_error_code(err));
    if (!w->file.is_open)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "tensor %.100s is written into a GGUF file that is not open", name);
    if (!w->data_begin) GX_TRY(gx__gguf_write_header(w, err));
    GX_TRY(gx__gguf_pad(w, err)); // skips tensors without elements
    const GxGgufTensor *t = w->current < w->tensors ? &w->tensor[w->current] : NULL;
    if (!t || strcmp(t->name, name))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: tensor %.100s is written where %s is expected", w->file.path, name,
                       t ? t->name : "none");
    const GxGgufType *type = gx_gguf_type(t->type);
    if (count < 0 || count > t->elements - w->written || count % type->elements)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s: tensor %s: %ld more elements are written after %ld; it has %ld, in blocks of %d",
                       w->file.path, name, (long)count, (long)w->written, (long)t->elements, type->elements);
    for (int64_t done = 0; done < count;) {
        const int64_t n = gx_min(count - done, GX__GGUF_CHUNK), blocks = n / type->elements;
        GxError why = GX_ZERO;
        const GxStatus status = gx_gguf_encode(t->type, values + done, blocks, raw, &why);
        if (status != GX_OK) return GX_FAIL(err, status, "%s: tensor %s: %s", w->file.path, name, why.message);
        GX_TRY(gx_file_write_at(w->file.fd, w->file.path, raw, blocks * type->bytes,
                                w->data_begin + t->offset + w->written / type->elements * type->bytes, err));
        w->written += n, done += n;
    }
    return gx__gguf_pad(w, err);
}

GxStatus gx_gguf_finish(GxGgufWriter *w, GxError *err)
{
    GxStatus status = gx_error_code(err);
    if (status == GX_OK && !w->file.is_open)
        status = GX_FAIL(err, GX_ERR_ARGUMENT, "a GGUF file that is not open is finished");
    if (status == GX_OK && !w->data_begin) status = gx__gguf_write_header(w, err);
    if (status == GX_OK) status = gx__gguf_pad(w, err);
    if (status == GX_OK && w->current < w->tensors)
        status =
            GX_FAIL(err, GX_ERR_ARGUMENT, "%s: tensor %s was not written whole: %ld of its %ld elements were",
                    w->file.path, w->tensor[w->current].name, (long)w->written, (long)w->tensor[w->current].elements);
    if (status == GX_OK) status = gx_file_commit(&w->file, err);
    gx_gguf_abort(w);
    return status;
}

void gx_gguf_abort(GxGgufWriter *w)
{
    gx_file_abandon(&w->file);
    free(w->keys.p);
    free(w->infos.p);
    free(w->tensor);
    memset(w, 0, sizeof *w);
}
#endif
