// safetensors.h: reads and writes safetensors files (huggingface.co/docs/safetensors), the common format of weights.
//
//     u64 little-endian N | N bytes of JSON | data
//     the JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, …, "__metadata__": {…}}
//
// The reader trusts nothing. It takes a file, or a folder with model.safetensors or model.safetensors.index.json
// (shards), and refuses: headers that do not fit, are too large or not one strict JSON object; shapes and offsets that
// are not exact non-negative integers; tensors that do not cover the data from its first byte to its last without gap
// or overlap; products that overflow; indexes whose names leave the folder or differ from the shards' contents. Errors
// give file, tensor and reason. Links are followed, since Hugging Face's cache has them
// (snapshots/REVISION/model.safetensors leads to ../../blobs/HASH), and anybody who can put a link into the folder
// could put weights there, too. Data is read by pread in any range and order, so that a tensor need not fit into
// memory; alignment in the file is not assumed.
//
//     GxSafetensors s;
//     GX_TRY(gx_safetensors_open(&s, "model_folder", err));
//     const GxSafetensorsEntry *e = gx_safetensors_find(&s, "model.norm.weight");            // NULL: none of that name
//     if (e && e->elements == n) status = gx_safetensors_read(&s, e, 0, n, weights, err);    // as floats
//     gx_safetensors_close(&s);
//
// The writer orders tensors by descending dtype size, then by name, without gaps, and adds "format": "pt" to the
// metadata. Parts may be written in any order; the file gets its name in gx_safetensors_finish, if every byte was
// written, and is then synced.
//
//     GxSafetensorsWriter w;
//     GX_TRY(gx_safetensors_create(&w, path, entries, n, NULL, 0, err));                     // their names and shapes
//     for (…) status = gx_safetensors_write_floats(&w, name, first, values, count, err);     // rounds to their dtype
//     if (status == GX_OK) status = gx_safetensors_finish(&w, err);
//     gx_safetensors_abort(&w);                                                              // after finish: nothing
//
// Little-endian hosts only. A writer, and a reader being opened, belong to one thread; reads may come from several.
#ifndef GX_SAFETENSORS_H
#define GX_SAFETENSORS_H
#include "../base/dtype.h"
#include "json.h"
GX_BEGIN

enum {
    GX_SAFETENSORS_HEADER = 100000000, // bytes of JSON, as in the format's own library
    GX_SAFETENSORS_NAME = 256,         // with the terminating 0
    GX_SAFETENSORS_DIMS = 8,
    GX_SAFETENSORS_COUNT = 1 << 18, // tensors
    GX_SAFETENSORS_FILES = 1 << 10  // shards
};

typedef struct {
    char name[GX_SAFETENSORS_NAME];
    int dtype;           // a GxDtype; -1: another one, dtype_name, for gx_safetensors_read_raw only
    char dtype_name[12]; // as in the file
    int dtype_size;      // bytes
    int ndim;            // 0: a scalar
    int64_t shape[GX_SAFETENSORS_DIMS];
    int64_t elements;
    int file;       // index into GxSafetensors.file
    int64_t offset; // in that file, in bytes
    int64_t bytes;
} GxSafetensorsEntry;

typedef struct {
    int fd;
    int64_t bytes;
    char path[GX_PATH], name[GX_FILE_NAME];
} GxSafetensorsFile;

typedef struct {
    GxSafetensorsEntry *entry; // sorted by name
    int n, capacity;
    GxSafetensorsFile *file;
    int files;
    GxJson *metadata; // of the first file: string to string; NULL: none
} GxSafetensors;

// A file or a folder; on failure nothing stays open
GxStatus gx_safetensors_open(GxSafetensors *s, const char *path, GxError *err);
// Opens a copy of a file: later changes of the file have no effect.
GxStatus gx_safetensors_open_copy(GxSafetensors *s, const char *path, GxError *err);
void gx_safetensors_close(GxSafetensors *s);
const GxSafetensorsEntry *gx_safetensors_find(const GxSafetensors *s, const char *name); // NULL: none
const char *gx_safetensors_metadata(const GxSafetensors *s, const char *key);            // NULL: none

// Elements [first, first + count) of a tensor. As floats: from F32, BF16, F16 and F64; raw: any dtype, count *
// dtype_size bytes.
GxStatus gx_safetensors_read(const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first, int64_t count,
                             float *out, GxError *err);
GxStatus gx_safetensors_read_raw(const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first, int64_t count,
                                 void *out, GxError *err);

typedef struct {
    const char *key, *value;
} GxSafetensorsPair;
typedef struct {
    int64_t begin, end;
} GxSafetensorsSpan;
typedef struct {
    GxSafetensorsEntry *entry; // sorted by name
    int n;
    GxNewFile file;
    int64_t data_begin, data_end; // bytes of the file
    GxSafetensorsSpan *span;      // what has been written so far: sorted, disjoint, not adjacent
    int spans, spans_capacity;
} GxSafetensorsWriter;

// Of `entries`, name, dtype, ndim and shape are used. `metadata` is added to "format": "pt". _write takes data in the
// tensor's own dtype.
GxStatus gx_safetensors_create(GxSafetensorsWriter *w, const char *path, const GxSafetensorsEntry *entries, int n,
                               const GxSafetensorsPair *metadata, int pairs, GxError *err);
GxStatus gx_safetensors_write(GxSafetensorsWriter *w, const char *name, int64_t first, const void *data, int64_t count,
                              GxError *err);
GxStatus gx_safetensors_write_floats(GxSafetensorsWriter *w, const char *name, int64_t first, const float *data,
                                     int64_t count, GxError *err);
// An incomplete tensor is an error, and no file is made
GxStatus gx_safetensors_finish(GxSafetensorsWriter *w, GxError *err);
void gx_safetensors_abort(GxSafetensorsWriter *w); // leaves nothing behind; does nothing after finish

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SAFETENSORS_IMPLEMENTED)
#define GX_SAFETENSORS_IMPLEMENTED
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "galaxy/io/safetensors.h works on little-endian machines only"
#endif

enum { GX__ST_INDEX_CAP = 64 << 20, GX__ST_CHUNK = 8192 }; // bytes of an index file; elements converted at a time

#define GX__ST_FAIL(err, path, name, ...) gx__st_fail((err), __LINE__, (path), (name), __VA_ARGS__)
static GxStatus gx__st_fail(GxError *err, int line, const char *path, const char *name, const char *format, ...)
    GX_PRINTF(5, 6);
static GxStatus gx__st_fail(GxError *err, int line, const char *path, const char *name, const char *format, ...)
{
    char reason[300];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return gx_error_set(err, GX_ERR_FORMAT, __FILE__, line, "%s: tensor %.120s: %s", path, name, reason);
}

// ---- dtypes --------------------------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    int size;
} gx__StDtype;
static const gx__StDtype gx__st_dtypes[] = {{"F64", 8},     {"I64", 8},    {"U64", 8},  {"C64", 8},  {"F32", 4},
                                            {"I32", 4},     {"U32", 4},    {"BF16", 2}, {"F16", 2},  {"I16", 2},
                                            {"U16", 2},     {"I8", 1},     {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1},
                                            {"F8_E5M2", 1}, {"F8_E8M0", 1}};

static int gx__st_set_dtype(GxSafetensorsEntry *e, const char *name) // 0: unknown
{
    for (size_t i = 0; i < sizeof gx__st_dtypes / sizeof *gx__st_dtypes; i++) {
        if (strcmp(gx__st_dtypes[i].name, name)) continue;
        snprintf(e->dtype_name, sizeof e->dtype_name, "%s", name);
        e->dtype_size = gx__st_dtypes[i].size;
        e->dtype = gx_dtype_from_name(name);
        return 1;
    }
    return 0;
}

// ---- entries -------------------------------------------------------------------------------------------------------

static int gx__st_by_name(const void *a, const void *b)
{
    return strcmp(((const GxSafetensorsEntry *)a)->name, ((const GxSafetensorsEntry *)b)->name);
}

static int gx__st_by_offset(const void *a, const void *b)
{
    const GxSafetensorsEntry *x = (const GxSafetensorsEntry *)a, *y = (const GxSafetensorsEntry *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    // empty tensors come before the one that begins at the same offset
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int gx__st_by_size(const void *a, const void *b)
{
    int difference = ((const GxSafetensorsEntry *)b)->dtype_size - ((const GxSafetensorsEntry *)a)->dtype_size;
    return difference ? difference : gx__st_by_name(a, b);
}

static void gx__st_sort(GxSafetensorsEntry *entry, int n, int (*compare)(const void *, const void *))
{
    if (n > 1) qsort(entry, (size_t)n, sizeof *entry, compare);
}

static GxSafetensorsEntry *gx__st_find(GxSafetensorsEntry *entry, int n, const char *name)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2, order = strcmp(name, entry[middle].name);
        if (order == 0) return &entry[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

// Computes elements and bytes from shape and dtype; 0: they overflow. A dimension of 0 does not hide an overflow of the
// others.
static int gx__st_measure(GxSafetensorsEntry *e)
{
    int64_t product = 1;
    int empty = 0;
    for (int d = 0; d < e->ndim; d++) {
        if (e->shape[d] == 0) empty = 1;
        else if (__builtin_mul_overflow(product, e->shape[d], &product)) return 0;
    }
    if (__builtin_mul_overflow(product, (int64_t)e->dtype_size, &product)) return 0;
    e->bytes = empty ? 0 : product;
    e->elements = e->bytes / e->dtype_size;
    return 1;
}

static GxStatus gx__st_check_range(const char *path, const GxSafetensorsEntry *e, int64_t first, int64_t count,
                                   GxError *err)
{
    if (first >= 0 && count >= 0 && first <= e->elements && count <= e->elements - first) return GX_OK;
    return gx_error_set(err, GX_ERR_ARGUMENT, __FILE__, __LINE__,
                        "%s: tensor %.120s: %ld elements from number %ld on are asked for; it has %ld", path, e->name,
                        (long)count, (long)first, (long)e->elements);
}

// ---- reading -------------------------------------------------------------------------------------------------------

// An exact non-negative integer, or -1.
static int64_t gx__st_count(const GxJson *value)
{
    return gx_json_type(value) == GX_JSON_INT && gx_json_int(value) >= 0 ? gx_json_int(value) : -1;
}

static GxStatus gx__st_read_shape(GxSafetensorsEntry *e, const GxJson *shape, const char *path, GxError *err)
{
    if (gx_json_type(shape) != GX_JSON_ARRAY)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: tensor %s: \"shape\" is %s; expected an array", path, e->name,
                       gx_json_type_name(shape));
    if (gx_json_size(shape) > GX_SAFETENSORS_DIMS)
        return GX__ST_FAIL(err, path, e->name, "has %ld dimensions; at most %d are read", (long)gx_json_size(shape),
                           GX_SAFETENSORS_DIMS);
    e->ndim = (int)gx_json_size(shape);
    for (int d = 0; d < e->ndim; d++) {
        e->shape[d] = gx__st_count(gx_json_at(shape, d));
        if (e->shape[d] < 0)
            return GX__ST_FAIL(err, path, e->name, "dimension %d of its shape is not a non-negative integer", d);
    }
    return GX_OK;
}

// One member of the header. Offsets become bytes of the file; `data` is where the data begins.
static GxStatus gx__st_read_entry(GxSafetensorsEntry *e, const GxJsonMember *m, const GxSafetensorsFile *file,
                                  int64_t data, GxError *err)
{
    const char *path = file->path;
    if (snprintf(e->name, sizeof e->name, "%s", m->key) >= GX_SAFETENSORS_NAME || !m->key[0])
        return GX__ST_FAIL(err, path, m->key, "its name has %ld bytes; 1 to %d are read", (long)strlen(m->key),
                           GX_SAFETENSORS_NAME - 1);
    if (gx_json_type(m->value) != GX_JSON_OBJECT)
        return GX__ST_FAIL(err, path, e->name, "it is %s; expected an object", gx_json_type_name(m->value));
    const GxJson *dtype = gx_json_get(m->value, "dtype"), *offsets = gx_json_get(m->value, "data_offsets");
    if (gx_json_type(dtype) != GX_JSON_STRING)
        return GX__ST_FAIL(err, path, e->name, "\"dtype\" is %s; expected a string", gx_json_type_name(dtype));
    if (!gx__st_set_dtype(e, gx_json_string(dtype)))
        return GX__ST_FAIL(err, path, e->name, "the dtype \"%.20s\" is not known", gx_json_string(dtype));
    GX_TRY(gx__st_read_shape(e, gx_json_get(m->value, "shape"), path, err));
    if (!gx__st_measure(e)) return GX__ST_FAIL(err, path, e->name, "the size of its shape does not fit into 64 bits");

    int64_t begin = gx__st_count(gx_json_at(offsets, 0)), end = gx__st_count(gx_json_at(offsets, 1));
    if (gx_json_type(offsets) != GX_JSON_ARRAY || gx_json_size(offsets) != 2 || begin < 0 || end < 0)
        return GX__ST_FAIL(err, path, e->name, "\"data_offsets\" is not a list of exactly two non-negative integers");
    if (end < begin)
        return GX__ST_FAIL(err, path, e->name, "its data end at %ld, before they begin at %ld", (long)end, (long)begin);
    if (end > file->bytes - data)
        return GX__ST_FAIL(err, path, e->name,
                           "its data end at %ld, but the file holds %ld bytes of data: it is cut off", (long)end,
                           (long)(file->bytes - data));
    if (end - begin != e->bytes)
        return GX__ST_FAIL(err, path, e->name, "its shape and dtype take %ld bytes, but its data_offsets give %ld",
                           (long)e->bytes, (long)(end - begin));
    e->offset = data + begin;
    return GX_OK;
}

static GxStatus gx__st_check_metadata(const GxJson *metadata, const char *path, GxError *err)
{
    if (gx_json_type(metadata) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: __metadata__ is %s; expected an object of strings", path,
                       gx_json_type_name(metadata));
    for (GxJsonMember m = GX_ZERO; gx_json_next(metadata, &m);)
        if (gx_json_type(m.value) != GX_JSON_STRING)
            return GX_FAIL(err, GX_ERR_FORMAT, "%s: __metadata__: \"%.100s\" is %s; expected a string", path, m.key,
                           gx_json_type_name(m.value));
    return GX_OK;
}

static GxStatus gx__st_reserve(GxSafetensors *s, int64_t more, const char *path, GxError *err)
{
    if (more > GX_SAFETENSORS_COUNT - s->n)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: more than %d tensors", path, GX_SAFETENSORS_COUNT);
    s->capacity = s->n + (int)more;
    GxSafetensorsEntry *grown = (GxSafetensorsEntry *)realloc(s->entry, (size_t)(s->capacity + 1) * sizeof *grown);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory for %d tensors", path, s->capacity);
    s->entry = grown;
    return GX_OK;
}

// The tensors of one file, from s->entry[first] on, must cover [data, end of file) without gap or overlap.
static GxStatus gx__st_check_cover(const GxSafetensors *s, int first, const GxSafetensorsFile *file, int64_t data,
                                   GxError *err)
{
    int64_t at = data;
    gx__st_sort(s->entry + first, s->n - first, gx__st_by_offset);
    for (int i = first; i < s->n; i++) {
        const GxSafetensorsEntry *e = &s->entry[i];
        if (e->offset != at)
            return GX__ST_FAIL(err, file->path, e->name, "its data begin at %ld, but %ld was expected: %s",
                               (long)(e->offset - data), (long)(at - data),
                               e->offset < at ? "it overlaps the tensor before it" : "there is a hole before it");
        at += e->bytes;
    }
    if (at == file->bytes) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT, "%s: %ld bytes follow the last tensor", file->path, (long)(file->bytes - at));
}

static GxStatus gx__st_read_header(GxSafetensors *s, const GxJson *header, int number, int64_t data, GxError *err)
{
    const GxSafetensorsFile *file = &s->file[number];
    int first = s->n;
    if (gx_json_type(header) != GX_JSON_OBJECT)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the header is %s; expected an object", file->path,
                       gx_json_type_name(header));
    GX_TRY(gx__st_reserve(s, gx_json_size(header), file->path, err));
    for (GxJsonMember m = GX_ZERO; gx_json_next(header, &m);) {
        if (!strcmp(m.key, "__metadata__")) {
            GX_TRY(gx__st_check_metadata(m.value, file->path, err));
            if (number == 0) s->metadata = gx_json_copy(m.value);
            continue;
        }
        GxSafetensorsEntry *e = &s->entry[s->n];
        memset(e, 0, sizeof *e);
        e->file = number;
        GX_TRY(gx__st_read_entry(e, &m, file, data, err));
        s->n++;
    }
    return gx__st_check_cover(s, first, file, data, err);
}

// Opens one file and appends its tensors.
static GxStatus gx__st_load_as(GxSafetensors *s, const char *path, const char *name, int is_copied, GxError *err)
{
    if (s->files == GX_SAFETENSORS_FILES)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: more than %d files", path, GX_SAFETENSORS_FILES);
    GxSafetensorsFile *grown = (GxSafetensorsFile *)realloc(s->file, (size_t)(s->files + 1) * sizeof *grown);
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory", path);
    s->file = grown;
    GxSafetensorsFile *file = &s->file[s->files];
    memset(file, 0, sizeof *file);
    if (snprintf(file->path, GX_PATH, "%s", path) >= GX_PATH ||
        snprintf(file->name, GX_FILE_NAME, "%s", name) >= GX_FILE_NAME)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is too long", path);
    GX_TRY(gx_file_open(path, &file->fd, &file->bytes, err));
    int number = s->files++; // from here on gx_safetensors_close closes it
    if (is_copied) GX_TRY(gx_file_copy_apart(path, &file->fd, file->bytes, err));

    uint64_t n;
    if (file->bytes < 8)
        return GX_FAIL(err, GX_ERR_FORMAT, "%s has %ld bytes; a safetensors file has at least 8", path,
                       (long)file->bytes);
    GX_TRY(gx_file_read_at(file->fd, path, &n, 8, 0, err));
    if (n > GX_SAFETENSORS_HEADER || n > (uint64_t)file->bytes - 8)
        return GX_FAIL(
            err, GX_ERR_FORMAT,
            "%s: a header size of %llu is announced, but the file has %ld bytes, and headers have at most %d: %s", path,
            (unsigned long long)n, (long)file->bytes, GX_SAFETENSORS_HEADER,
            "it is cut off, or not a safetensors file");
    char *text = (char *)malloc((size_t)n + 1);
    if (!text)
        return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory for a header of %llu bytes", path, (unsigned long long)n);
    GxJson *header = NULL;
    GxStatus status = gx_file_read_at(file->fd, path, text, (int64_t)n, 8, err);
    if (status == GX_OK && (n == 0 || text[0] != '{'))
        status = GX_FAIL(err, GX_ERR_FORMAT, "%s: the header does not begin with {", path);
    if (status == GX_OK) status = gx_json_parse(&header, text, (int64_t)n, path, err);
    free(text);
    if (status == GX_OK) status = gx__st_read_header(s, header, number, 8 + (int64_t)n, err);
    gx_json_free(header);
    return status;
}

static GxStatus gx__st_load(GxSafetensors *s, const char *path, const char *name, GxError *err)
{
    return gx__st_load_as(s, path, name, 0, err);
}

// ---- reading shards ------------------------------------------------------------------------------------------------

static int gx__st_file_number(const GxSafetensors *s, const char *name)
{
    for (int i = 0; i < s->files; i++)
        if (!strcmp(s->file[i].name, name)) return i;
    return -1;
}

static GxStatus gx__st_check_link(const char *path, GxError *err)
{
    if (!gx_path_is_broken(path)) return GX_OK;
    return GX_FAIL(err, GX_ERR_IO,
                   "%s is a link to a file that does not exist: its download did not finish, or the file was moved; "
                   "download it again, or repair the link",
                   path);
}

// A name in an index must be that of a file in this folder; it may be a link to anywhere.
static GxStatus gx__st_load_shard(GxSafetensors *s, const char *folder, const char *index, const char *name,
                                  GxError *err)
{
    char path[GX_PATH];
    if (!gx_path_is_plain(name))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s: the shard \"%.100s\" is not a plain file name", index, name);
    GX_TRY(gx_path_join(path, folder, name, err));
    GX_TRY(gx__st_check_link(path, err));
    if (!gx_path_is_file(path))
        return GX_FAIL(err, GX_ERR_FORMAT, "%s names the shard %s, which is missing; download it again", index, name);
    return gx__st_load(s, path, name, err);
}

static GxStatus gx__st_check_index(const GxSafetensors *s, const GxJson *map, const char *index, GxError *err)
{
    for (GxJsonMember m = GX_ZERO; gx_json_next(map, &m);) {
        const GxSafetensorsEntry *e = gx_safetensors_find(s, m.key);
        const char *name = gx_json_string(m.value);
        if (!e || strcmp(s->file[e->file].name, name))
            return GX__ST_FAIL(err, index, m.key, "it is not in %.100s, where the index says it is", name);
    }
    for (int i = 0; i < s->n; i++) // every tensor must be in the map once
        if (!gx_json_get(map, s->entry[i].name))
            return GX__ST_FAIL(err, s->file[s->entry[i].file].path, s->entry[i].name, "it is not in %s", index);
    return GX_OK;
}

static GxStatus gx__st_check_names(GxSafetensors *s, GxError *err)
{
    gx__st_sort(s->entry, s->n, gx__st_by_name);
    for (int i = 1; i < s->n; i++)
        if (!strcmp(s->entry[i].name, s->entry[i - 1].name))
            return GX__ST_FAIL(err, s->file[s->entry[i].file].path, s->entry[i].name, "it is also in %s",
                               s->file[s->entry[i - 1].file].name);
    return GX_OK;
}

static GxStatus gx__st_read_index(GxSafetensors *s, const GxJson *root, const char *folder, const char *index,
                                  GxError *err)
{
    GxJson *map = NULL, *metadata = NULL;
    GX_TRY(gx_json_get_object(root, "metadata", 1, &metadata, index, err));
    GX_TRY(gx_json_get_object(root, "weight_map", 1, &map, index, err));
    if (gx_json_size(map) == 0) return GX_FAIL(err, GX_ERR_FORMAT, "%s: the weight_map is empty", index);
    for (GxJsonMember m = GX_ZERO; gx_json_next(map, &m);) {
        if (gx_json_type(m.value) != GX_JSON_STRING)
            return GX__ST_FAIL(err, index, m.key, "its file is %s; expected a string", gx_json_type_name(m.value));
        if (gx__st_file_number(s, gx_json_string(m.value)) < 0)
            GX_TRY(gx__st_load_shard(s, folder, index, gx_json_string(m.value), err));
    }
    GX_TRY(gx__st_check_names(s, err));
    return gx__st_check_index(s, map, index, err);
}

static GxStatus gx__st_open_folder(GxSafetensors *s, const char *folder, GxError *err)
{
    char single[GX_PATH], index[GX_PATH];
    GxJson *root;
    GX_TRY(gx_path_join(single, folder, "model.safetensors", err));
    GX_TRY(gx_path_join(index, folder, "model.safetensors.index.json", err));
    GX_TRY(gx__st_check_link(single, err));
    if (gx_path_is_file(single)) { // has precedence over the index, as in other readers
        GX_TRY(gx__st_load(s, single, "model.safetensors", err));
        return gx__st_check_names(s, err);
    }
    if (!gx_path_is_file(index))
        return GX_FAIL(
            err, GX_ERR_IO,
            "%s holds neither model.safetensors nor model.safetensors.index.json; name a folder or a file with weights",
            folder);
    // Only weight_map is used: it must have each tensor of the files, and no others.
    GX_TRY(gx_json_read(&root, index, GX__ST_INDEX_CAP, err));
    GxStatus status = gx__st_read_index(s, root, folder, index, err);
    gx_json_free(root);
    return status;
}

GxStatus gx_safetensors_open(GxSafetensors *s, const char *path, GxError *err)
{
    const char *slash = strrchr(path, '/');
    memset(s, 0, sizeof *s);
    GxStatus status = gx_path_is_folder(path) ? gx__st_open_folder(s, path, err)
                                              : gx__st_load(s, path, slash ? slash + 1 : path, err);
    if (status == GX_OK) status = gx__st_check_names(s, err);
    if (status != GX_OK) gx_safetensors_close(s);
    return status;
}

GxStatus gx_safetensors_open_copy(GxSafetensors *s, const char *path, GxError *err)
{
    memset(s, 0, sizeof *s);
    GxStatus status = gx__st_load_as(s, path, "", 1, err);
    if (status == GX_OK) status = gx__st_check_names(s, err);
    if (status != GX_OK) gx_safetensors_close(s);
    return status;
}

void gx_safetensors_close(GxSafetensors *s)
{
    for (int i = 0; i < s->files; i++) close(s->file[i].fd);
    free(s->file);
    free(s->entry);
    gx_json_free(s->metadata);
    memset(s, 0, sizeof *s);
}

const GxSafetensorsEntry *gx_safetensors_find(const GxSafetensors *s, const char *name)
{
    return gx__st_find(s->entry, s->n, name);
}

const char *gx_safetensors_metadata(const GxSafetensors *s, const char *key)
{
    const GxJson *value = gx_json_get(s->metadata, key);
    return value ? gx_json_string(value) : NULL;
}

GxStatus gx_safetensors_read_raw(const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first, int64_t count,
                                 void *out, GxError *err)
{
    const GxSafetensorsFile *file = &s->file[e->file];
    GX_TRY(gx__st_check_range(file->path, e, first, count, err));
    return gx_file_read_at(file->fd, file->path, out, count * e->dtype_size, e->offset + first * e->dtype_size, err);
}

GxStatus gx_safetensors_read(const GxSafetensors *s, const GxSafetensorsEntry *e, int64_t first, int64_t count,
                             float *out, GxError *err)
{
    union {
        uint16_t u16[GX__ST_CHUNK];
        double f64[GX__ST_CHUNK];
    } chunk;
    const char *path = s->file[e->file].path;
    if (e->dtype == GX_F32) return gx_safetensors_read_raw(s, e, first, count, out, err);
    if (e->dtype != GX_BF16 && e->dtype != GX_F16 && e->dtype != GX_F64)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: tensor %.120s holds %s; numbers are read from F32, BF16, F16 and F64", path, e->name,
                       e->dtype_name);
    GX_TRY(gx__st_check_range(path, e, first, count, err));
    for (int64_t at = 0; at < count; at += GX__ST_CHUNK) {
        int64_t n = gx_min(GX__ST_CHUNK, count - at);
        GX_TRY(gx_safetensors_read_raw(s, e, first + at, n, &chunk, err));
        for (int64_t i = 0; i < n; i++)
            out[at + i] = e->dtype == GX_BF16  ? gx_from_bf16(chunk.u16[i])
                          : e->dtype == GX_F16 ? gx_from_f16(chunk.u16[i])
                                               : (float)chunk.f64[i];
    }
    return GX_OK;
}

// ---- writing -------------------------------------------------------------------------------------------------------

static GxStatus gx__st_check_new(GxSafetensorsEntry *e, const char *path, GxError *err)
{
    int wanted = e->dtype;
    if (!memchr(e->name, 0, sizeof e->name) || !e->name[0] || !strcmp(e->name, "__metadata__"))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: a tensor has no name, or one that is not allowed", path);
    if (wanted < 0 || wanted >= GX_DTYPES || !gx__st_set_dtype(e, gx_dtype_name((GxDtype)wanted)))
        return GX__ST_FAIL(err, path, e->name, "%d is not a dtype that can be written", wanted);
    if (e->ndim < 0 || e->ndim > GX_SAFETENSORS_DIMS)
        return GX__ST_FAIL(err, path, e->name, "%d dimensions; 0 to %d can be written", e->ndim, GX_SAFETENSORS_DIMS);
    for (int d = 0; d < e->ndim; d++)
        if (e->shape[d] < 0) return GX__ST_FAIL(err, path, e->name, "dimension %d is %ld", d, (long)e->shape[d]);
    if (!gx__st_measure(e)) return GX__ST_FAIL(err, path, e->name, "the size of its shape does not fit into 64 bits");
    return GX_OK;
}

// Checks all entries, sorts them into the order of the file, and computes their offsets from the first byte of the
// data.
static GxStatus gx__st_layout(GxSafetensorsWriter *w, const char *path, GxError *err)
{
    w->data_end = 0;
    for (int i = 0; i < w->n; i++) GX_TRY(gx__st_check_new(&w->entry[i], path, err));
    gx__st_sort(w->entry, w->n, gx__st_by_name);
    for (int i = 1; i < w->n; i++)
        if (!strcmp(w->entry[i].name, w->entry[i - 1].name))
            return GX__ST_FAIL(err, path, w->entry[i].name, "it is listed twice");
    gx__st_sort(w->entry, w->n, gx__st_by_size);
    for (int i = 0; i < w->n; i++) {
        w->entry[i].offset = w->data_end;
        if (__builtin_add_overflow(w->data_end, w->entry[i].bytes, &w->data_end) || w->data_end > INT64_MAX / 2)
            return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: the tensors' sizes do not fit into 64 bits together", path);
    }
    return GX_OK;
}

static GxStatus gx__st_header_entry(GxJson *header, const GxSafetensorsEntry *e, GxError *err)
{
    GxJson *tensor = gx_json_new_object(), *shape = gx_json_new_array(), *offsets = gx_json_new_array();
    gx_json_set(tensor, "dtype", gx_json_new_string(e->dtype_name), err);
    for (int d = 0; d < e->ndim; d++) gx_json_append(shape, gx_json_new_int(e->shape[d]), err);
    gx_json_append(offsets, gx_json_new_int(e->offset), err);
    gx_json_append(offsets, gx_json_new_int(e->offset + e->bytes), err);
    gx_json_set(tensor, "shape", shape, err);
    gx_json_set(tensor, "data_offsets", offsets, err);
    gx_json_set(header, e->name, tensor, err);
    return gx_error_code(err);
}

// {"__metadata__":{"format":"pt",…},"name":{…},…}, padded with spaces to a multiple of 8 bytes. free(*text)
static GxStatus gx__st_header(const GxSafetensorsWriter *w, const GxSafetensorsPair *metadata, int pairs, char **text,
                              int64_t *bytes, GxError *err)
{
    GxJson *header = gx_json_new_object(), *meta = gx_json_new_object();
    *text = NULL;
    GxStatus status = gx_json_set(meta, "format", gx_json_new_string("pt"), err);
    for (int i = 0; i < pairs && status == GX_OK; i++) {
        if (!strcmp(metadata[i].key, "format"))
            status = GX_FAIL(err, GX_ERR_ARGUMENT, "safetensors metadata: \"format\" is always \"pt\"");
        else status = gx_json_set(meta, metadata[i].key, gx_json_new_string(metadata[i].value), err);
    }
    if (status == GX_OK) status = gx_json_set(header, "__metadata__", meta, err);
    else gx_json_free(meta);
    for (int i = 0; i < w->n && status == GX_OK; i++) status = gx__st_header_entry(header, &w->entry[i], err);
    if (status == GX_OK) status = gx_json_dump(header, 0, text, bytes, err);
    gx_json_free(header);
    if (status != GX_OK) return status;

    int64_t padded = gx_round_up(*bytes, 8);
    char *grown = (char *)realloc(*text, (size_t)padded + 1);
    if (grown) *text = grown;
    if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a safetensors header");
    memset(*text + *bytes, ' ', (size_t)(padded - *bytes));
    *bytes = padded;
    if (padded > GX_SAFETENSORS_HEADER)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "a safetensors header of %ld bytes; at most %d are allowed", (long)padded,
                       GX_SAFETENSORS_HEADER);
    return GX_OK;
}

GxStatus gx_safetensors_create(GxSafetensorsWriter *w, const char *path, const GxSafetensorsEntry *entries, int n,
                               const GxSafetensorsPair *metadata, int pairs, GxError *err)
{
    char *text = NULL;
    int64_t bytes = 0;
    memset(w, 0, sizeof *w);
    if (n < 0 || n > GX_SAFETENSORS_COUNT)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: %d tensors; at most %d can be written", path, n,
                       GX_SAFETENSORS_COUNT);
    w->entry = (GxSafetensorsEntry *)malloc((size_t)(n + 1) * sizeof *w->entry);
    if (!w->entry) return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory for %d tensors", path, n);
    if (n) memcpy(w->entry, entries, (size_t)n * sizeof *w->entry);
    w->n = n;
    GxStatus status = gx__st_layout(w, path, err);
    if (status == GX_OK) status = gx__st_header(w, metadata, pairs, &text, &bytes, err);
    if (status == GX_OK) status = gx_file_create(&w->file, path, err);
    if (status == GX_OK) status = gx_file_write_at(w->file.fd, w->file.path, &bytes, 8, 0, err);
    if (status == GX_OK) status = gx_file_write_at(w->file.fd, w->file.path, text, bytes, 8, err);
    free(text);
    if (status != GX_OK) {
        gx_safetensors_abort(w);
        return status;
    }
    w->data_begin = 8 + bytes;
    w->data_end += w->data_begin;
    for (int i = 0; i < n; i++) w->entry[i].offset += w->data_begin;
    gx__st_sort(w->entry, n, gx__st_by_name);
    return GX_OK;
}

// Adds [begin, end) to what has been written.
static GxStatus gx__st_note_span(GxSafetensorsWriter *w, int64_t begin, int64_t end, GxError *err)
{
    int first = 0, last;
    if (begin == end) return GX_OK;
    while (first < w->spans && w->span[first].end < begin) first++;
    for (last = first; last < w->spans && w->span[last].begin <= end; last++) {
        begin = gx_min(begin, w->span[last].begin);
        end = gx_max(end, w->span[last].end);
    }
    if (first == last && w->spans == w->spans_capacity) { // spans [first, last) become one
        w->spans_capacity = 2 * w->spans_capacity + 16;
        GxSafetensorsSpan *grown = (GxSafetensorsSpan *)realloc(w->span, (size_t)w->spans_capacity * sizeof *grown);
        if (!grown) return GX_FAIL(err, GX_ERR_MEMORY, "%s: no memory", w->file.path);
        w->span = grown;
    }
    memmove(w->span + first + 1, w->span + last, (size_t)(w->spans - last) * sizeof *w->span);
    w->spans += 1 - (last - first);
    w->span[first].begin = begin;
    w->span[first].end = end;
    return GX_OK;
}

static GxStatus gx__st_writable(GxSafetensorsWriter *w, const char *name, int64_t first, int64_t count,
                                GxSafetensorsEntry **e, GxError *err)
{
    if (!w->file.is_open)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "tensor %.120s is written into a safetensors file that is not open", name);
    *e = gx__st_find(w->entry, w->n, name);
    if (!*e)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s: tensor %.120s is not among those the file was created with",
                       w->file.path, name);
    return gx__st_check_range(w->file.path, *e, first, count, err);
}

GxStatus gx_safetensors_write(GxSafetensorsWriter *w, const char *name, int64_t first, const void *data, int64_t count,
                              GxError *err)
{
    GxSafetensorsEntry *e = NULL;
    GX_TRY(gx__st_writable(w, name, first, count, &e, err));
    int64_t offset = e->offset + first * e->dtype_size, bytes = count * e->dtype_size;
    GX_TRY(gx_file_write_at(w->file.fd, w->file.path, data, bytes, offset, err));
    return gx__st_note_span(w, offset, offset + bytes, err);
}

GxStatus gx_safetensors_write_floats(GxSafetensorsWriter *w, const char *name, int64_t first, const float *data,
                                     int64_t count, GxError *err)
{
    union {
        uint16_t u16[GX__ST_CHUNK];
        double f64[GX__ST_CHUNK];
    } chunk;
    GxSafetensorsEntry *e = NULL;
    GX_TRY(gx__st_writable(w, name, first, count, &e, err));
    if (e->dtype == GX_F32) return gx_safetensors_write(w, name, first, data, count, err);
    if (e->dtype != GX_BF16 && e->dtype != GX_F16 && e->dtype != GX_F64)
        return GX_FAIL(err, GX_ERR_UNSUPPORTED,
                       "%s: tensor %.120s is %s; numbers are written as F32, BF16, F16 and F64", w->file.path, name,
                       e->dtype_name);
    for (int64_t at = 0; at < count; at += GX__ST_CHUNK) {
        int64_t n = gx_min(GX__ST_CHUNK, count - at);
        for (int64_t i = 0; i < n; i++) {
            if (e->dtype == GX_BF16) chunk.u16[i] = gx_to_bf16(data[at + i]);
            else if (e->dtype == GX_F16) chunk.u16[i] = gx_to_f16(data[at + i]);
            else chunk.f64[i] = data[at + i];
        }
        GX_TRY(gx_safetensors_write(w, name, first + at, &chunk, n, err));
    }
    return GX_OK;
}

// The error for the first tensor with missing bytes.
static GxStatus gx__st_check_whole(const GxSafetensorsWriter *w, GxError *err)
{
    int64_t gap = w->spans && w->span[0].begin == w->data_begin ? w->span[0].end : w->data_begin;
    for (int i = 0; i < w->n; i++) {
        const GxSafetensorsEntry *e = &w->entry[i];
        if (gap >= e->offset && gap < e->offset + e->bytes)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s: tensor %.120s was not written whole: its element %ld of %ld is missing", w->file.path,
                           e->name, (long)((gap - e->offset) / e->dtype_size), (long)e->elements);
    }
    return GX_OK;
}

GxStatus gx_safetensors_finish(GxSafetensorsWriter *w, GxError *err)
{
    GxStatus status = gx__st_check_whole(w, err);
    if (status == GX_OK) status = gx_file_commit(&w->file, err);
    gx_safetensors_abort(w);
    return status;
}

void gx_safetensors_abort(GxSafetensorsWriter *w)
{
    gx_file_abandon(&w->file);
    free(w->entry);
    free(w->span);
    memset(w, 0, sizeof *w);
}
#endif
