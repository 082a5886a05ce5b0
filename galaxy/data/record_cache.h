// record_cache.h: a cache of records of one size, each under a key, in a file or in memory. Its contents can be
// computed again, so its faults are not errors for the caller: if a record is incomplete or damaged, the file belongs
// to something else, or the disk is full, the record is simply not found.
//
//     GxRecordCache c;
//     GX_TRY(gx_record_cache_open(&c, "side_cache/rank-0.rows", bytes, about, most, &found, err));
//     if (!gx_record_cache_read(&c, key, record)) {
//         compute(record);
//         gx_record_cache_write(&c, key, record);
//     }
//     gx_record_cache_close(&c);
//
// A file has a header of 64 bytes (its kind, the size of a record, the hash `about` of what records depend on), then
// records, each preceded by 32 bytes with its key and a checksum of both. Records are appended, and nothing is synced:
// incomplete ones are found in reading. Numbers are in this machine's format; a file of another kind of machine does
// not match.
//
// One process writes a file, and locks it; any number may read it. Memory: 32 to 64 bytes of the host per record.
#ifndef GX_RECORD_CACHE_H
#define GX_RECORD_CACHE_H
#include "../io/files.h"
GX_BEGIN

typedef struct {
    uint64_t word[2];
} GxRecordKey;
GxRecordKey gx_record_key(const void *data, int64_t bytes);
// A hash of every bit, eight bytes at a time, which continues from `hash`. Not FNV like gx_hash.
uint64_t gx_record_hash(uint64_t hash, const void *data, int64_t bytes);

typedef enum {
    GX_RECORDS_NEW = 0, // there was no file, or an empty one
    GX_RECORDS_SAME,    // its records can be used
    GX_RECORDS_OTHER,   // it belonged to something else, or to another version, and has been emptied
    GX_RECORDS_IN_USE   // another process writes it: its records are read, nothing is written
} GxRecordsFound;

enum { GX_RECORD_FILES = 64 };
typedef struct {
    int fd;
    int64_t records;
    char path[GX_PATH];
} GxRecordFile;
typedef struct { // where a record is
    GxRecordKey key;
    int32_t is_taken, file;
    int64_t number;
} GxRecordPlace;

typedef struct {
    int64_t bytes;              // of a record
    uint64_t about;             // what records depend on
    int64_t most;               // the most records; 0: none are written
    GxRecordFile *file;         // [GX_RECORD_FILES], the first one is written; NULL: records are in `memory`
    int files;                  // the number of open ones
    char *memory;               // borrowed
    int64_t records;            // in memory
    GxRecordPlace *place;       // [room], a power of two: a table by key
    int64_t n, room;            // records in the table
    int64_t damaged;            // records that were found to be wrong in reading
    int is_full;                // no more records are written: there are `most`, or
    GxError error;              // this error of the file
    int64_t found_all, written; // records read and written since it was opened
} GxRecordCache;

// The file's folder must exist. Errors are those of opening it and of memory, and that it is not a file of records.
GxStatus gx_record_cache_open(GxRecordCache *c, const char *path, int64_t bytes, uint64_t about, int64_t most,
                              GxRecordsFound *found, GxError *err);
// Refuses a path that exists and is not a file of records that can be written. Changes nothing.
GxStatus gx_record_cache_check(const char *path, GxError *err);
// 1: a file of records that depend on something else than c's; *size: its bytes.
int gx_record_cache_is_other(const GxRecordCache *c, const char *path, int64_t *size);
// Also reads the records of another file with the same `about`, as it is now. A file with another one is skipped.
GxStatus gx_record_cache_inspect(GxRecordCache *c, const char *path, GxError *err);
// memory: gx_record_cache_memory(bytes, most) bytes, which must remain valid.
void gx_record_cache_open_memory(GxRecordCache *c, void *memory, int64_t bytes, int64_t most);
void gx_record_cache_close(GxRecordCache *c); // accepts a struct of zeros

// 1: the record has been found, and is now in out[bytes]. 0: it has not; the contents of out are undefined.
int gx_record_cache_read(GxRecordCache *c, GxRecordKey key, void *out);
// 1: it has been written; an existing one is overwritten in place. 0: there is no room; if it is the disk's fault,
// c->error is set.
int gx_record_cache_write(GxRecordCache *c, GxRecordKey key, const void *record);

int64_t gx_record_cache_stride(int64_t bytes);               // the bytes of a record in a file
int64_t gx_record_cache_memory(int64_t bytes, int64_t most); // the bytes of so many in memory

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_RECORD_CACHE_IMPLEMENTED)
#define GX_RECORD_CACHE_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    char name[8];                                   // "GXRECORD"
    uint64_t version, bytes, about, spare[3], hash; // of all before it
} gx__RecordHead;
typedef struct {
    GxRecordKey key;
    uint64_t hash, spare; // of `about`, key and record
} gx__RecordBegin;
enum { GX__RECORD_VERSION = 1 };

// ---- hashes --------------------------------------------------------------------------------------------------------

// A bijection of either argument for a fixed other one: if one word differs, so does the result.
static inline uint64_t gx__record_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

uint64_t gx_record_hash(uint64_t hash, const void *data, int64_t bytes)
{
    const char *p = (const char *)data;
    uint64_t lane[4], word[4];
    int64_t at = 0;
    for (int k = 0; k < 4; k++) lane[k] = gx__record_mix(hash, (uint64_t)k + 1);
    for (; at + 32 <= bytes; at += 32) { // four lanes, which a processor computes in parallel
        memcpy(word, p + at, sizeof word);
        for (int k = 0; k < 4; k++) lane[k] = gx__record_mix(lane[k], word[k]);
    }
    for (; at < bytes; at += 8) {
        word[0] = 0;
        memcpy(word, p + at, (size_t)gx_min(8, bytes - at));
        lane[0] = gx__record_mix(lane[0], word[0]);
    }
    hash = gx__record_mix(hash, (uint64_t)bytes);
    for (int k = 0; k < 4; k++) hash = gx__record_mix(hash, lane[k]);
    return hash;
}

GxRecordKey gx_record_key(const void *data, int64_t bytes)
{
    GxRecordKey key;
    key.word[0] = gx_hash(GX_HASH_START, data, bytes);
    key.word[1] = gx_record_hash(GX_HASH_START, data, bytes);
    return key;
}

// Includes `about`: a file that is read may meanwhile have been replaced by one with other records under the same keys.
static uint64_t gx__record_hash_of(const GxRecordCache *c, GxRecordKey key, const void *record)
{
    const uint64_t hash = gx_record_hash(GX_HASH_START, &c->about, sizeof c->about);
    return gx_record_hash(gx_record_hash(hash, &key, sizeof key), record, c->bytes);
}

// ---- which records there are ---------------------------------------------------------------------------------------

static GxRecordPlace *gx__record_find(GxRecordPlace *place, int64_t room, GxRecordKey key)
{
    uint64_t at = key.word[1] & (uint64_t)(room - 1);
    while (place[at].is_taken && memcmp(&place[at].key, &key, sizeof key)) at = (at + 1) & (uint64_t)(room - 1);
    return &place[at];
}

static GxRecordPlace *gx__record_place(const GxRecordCache *c, GxRecordKey key) // NULL: not found
{
    GxRecordPlace *p = c->room ? gx__record_find(c->place, c->room, key) : NULL;
    return p && p->is_taken ? p : NULL;
}

static GxStatus gx__record_grow(GxRecordCache *c, GxError *err)
{
    const int64_t room = gx_max(64, 2 * c->room);
    GxRecordPlace *place;
    if (2 * (c->n + 1) <= c->room) return GX_OK; // at most half of the table is used
    place = (GxRecordPlace *)calloc((size_t)room, sizeof *place);
    if (!place) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the places of %ld records", (long)room);
    for (int64_t i = 0; i < c->room; i++)
        if (c->place[i].is_taken) *gx__record_find(place, room, c->place[i].key) = c->place[i];
    free(c->place);
    c->place = place, c->room = room;
    return GX_OK;
}

static GxStatus gx__record_note(GxRecordCache *c, GxRecordKey key, int file, int64_t number, GxError *err)
{
    GX_TRY(gx__record_grow(c, err));
    GxRecordPlace *p = gx__record_find(c->place, c->room, key);
    if (p->is_taken && p->file == 0 && file > 0) return GX_OK; // records of the file that is written have precedence
    c->n += !p->is_taken;
    p->key = key, p->is_taken = 1, p->file = file, p->number = number;
    return GX_OK;
}

// ---- files ---------------------------------------------------------------------------------------------------------

int64_t gx_record_cache_stride(int64_t bytes) { return (int64_t)sizeof(gx__RecordBegin) + gx_round_up(bytes, 32); }

static int64_t gx__record_offset(const GxRecordCache *c, int64_t number)
{
    return (int64_t)sizeof(gx__RecordHead) + number * gx_record_cache_stride(c->bytes);
}

static gx__RecordHead gx__record_head(const GxRecordCache *c)
{
    gx__RecordHead h = GX_ZERO;
    memcpy(h.name, "GXRECORD", sizeof h.name);
    h.version = GX__RECORD_VERSION, h.bytes = (uint64_t)c->bytes, h.about = c->about;
    h.hash = gx_hash(GX_HASH_START, &h, (int64_t)offsetof(gx__RecordHead, hash));
    return h;
}

static int gx__record_is_same(const GxRecordCache *c, int fd)
{
    const gx__RecordHead wanted = gx__record_head(c);
    gx__RecordHead found;
    GxError ignored = GX_ZERO;
    return gx_file_read_at(fd, "", &found, sizeof found, 0, &ignored) == GX_OK &&
           !memcmp(&found, &wanted, sizeof found);
}

// Refuses files that are not of this kind.
static GxStatus gx__record_check_kind(const GxRecordFile *f, int64_t size, GxError *err)
{
    static const char name[] = "GXRECORD";
    char found[sizeof name - 1] = "";
    const int64_t n = gx_min(size, (int64_t)sizeof found);
    GX_TRY(gx_file_read_at(f->fd, f->path, found, n, 0, err));
    if (!memcmp(found, name, (size_t)n)) return GX_OK;
    return GX_FAIL(err, GX_ERR_FORMAT,
                   "%s is not a cache of records, and is left as it is; move it, or choose another folder", f->path);
}

GxStatus gx_record_cache_check(const char *path, GxError *err)
{
    GxRecordFile f = GX_ZERO;
    struct stat st;
    int64_t size = 0;
    GX_TRY(gx_file_check_output(path, err));
    if (stat(path, &st) != 0 && errno == ENOENT) return GX_OK;
    if (stat(path, &st) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot access %s: %s", path, strerror(errno));
    if (access(path, R_OK | W_OK) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    snprintf(f.path, sizeof f.path, "%s", path);
    GX_TRY(gx_file_open(path, &f.fd, &size, err));
    gx__record_check_kind(&f, size, err);
    close(f.fd);
    return gx_error_code(err);
}

int gx_record_cache_is_other(const GxRecordCache *c, const char *path, int64_t *size)
{
    GxRecordFile f = GX_ZERO;
    GxError ignored = GX_ZERO; // then it is not one
    if (gx_file_open(path, &f.fd, size, &ignored) != GX_OK) return 0;
    const int is_other = *size >= (int64_t)sizeof(gx__RecordHead) &&
                         gx__record_check_kind(&f, *size, &ignored) == GX_OK && !gx__record_is_same(c, f.fd);
    close(f.fd);
    return is_other;
}

// An incomplete record is ignored.
static GxStatus gx__record_scan(GxRecordCache *c, int file, int64_t size, GxError *err)
{
    GxRecordFile *f = &c->file[file];
    gx__RecordBegin begin;
    f->records = (size - (int64_t)sizeof(gx__RecordHead)) / gx_record_cache_stride(c->bytes);
    for (int64_t i = 0; i < f->records; i++) {
        GX_TRY(gx_file_read_at(f->fd, f->path, &begin, sizeof begin, gx__record_offset(c, i), err));
        GX_TRY(gx__record_note(c, begin.key, file, i, err));
    }
    return GX_OK;
}

static GxStatus gx__record_empty(GxRecordCache *c, GxError *err)
{
    const gx__RecordHead head = gx__record_head(c);
    GxRecordFile *f = &c->file[0];
    if (ftruncate(f->fd, 0) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot empty %s: %s", f->path, strerror(errno));
    f->records = 0;
    if (gx_file_write_at(f->fd, f->path, &head, sizeof head, 0, &c->error) != GX_OK) c->is_full = 1;
    return GX_OK;
}

static GxStatus gx__record_open(GxRecordCache *c, const char *path, GxRecordsFound *found, GxError *err)
{
    GxRecordFile *f = &c->file[0];
    struct stat st;
    GX_TRY(gx_record_cache_check(path, err)); // before it is opened, which may have effects on a device
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (f->fd < 0) return GX_FAIL(err, GX_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    c->files = 1;
    snprintf(f->path, sizeof f->path, "%s", path);
    if (fstat(f->fd, &st) != 0) return GX_FAIL(err, GX_ERR_IO, "cannot access %s: %s", path, strerror(errno));
    GX_TRY(gx__record_check_kind(f, (int64_t)st.st_size, err));
    const int is_in_use = flock(f->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK,
              is_same = gx__record_is_same(c, f->fd);
    *found = is_in_use         ? GX_RECORDS_IN_USE
             : st.st_size == 0 ? GX_RECORDS_NEW
             : is_same         ? GX_RECORDS_SAME
                               : GX_RECORDS_OTHER;
    if (is_in_use) c->most = 0;
    if (is_same) return gx__record_scan(c, 0, (int64_t)st.st_size, err);
    return is_in_use ? GX_OK : gx__record_empty(c, err);
}

GxStatus gx_record_cache_open(GxRecordCache *c, const char *path, int64_t bytes, uint64_t about, int64_t most,
                              GxRecordsFound *found, GxError *err)
{
    memset(c, 0, sizeof *c);
    *found = GX_RECORDS_NEW;
    c->bytes = bytes, c->about = about, c->most = most;
    if (bytes < 1) return GX_FAIL(err, GX_ERR_ARGUMENT, "records of %ld bytes; 1 or more are needed", (long)bytes);
    if (strlen(path) >= GX_PATH)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "the path %.200s… is longer than %d bytes", path, GX_PATH - 1);
    c->file = (GxRecordFile *)calloc(GX_RECORD_FILES, sizeof *c->file);
    if (!c->file) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for a list of files");
    const GxStatus status = gx__record_open(c, path, found, err);
    if (status != GX_OK) gx_record_cache_close(c);
    return status;
}

GxStatus gx_record_cache_inspect(GxRecordCache *c, const char *path, GxError *err)
{
    GxRecordFile *f;
    int64_t size;
    if (c->files == GX_RECORD_FILES) return GX_OK;
    f = &c->file[c->files];
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path) return GX_OK;
    GX_TRY(gx_file_open(path, &f->fd, &size, err));
    if (!gx__record_is_same(c, f->fd)) {
        close(f->fd);
        return GX_OK;
    }
    return gx__record_scan(c, c->files++, size, err);
}

void gx_record_cache_close(GxRecordCache *c)
{
    for (int i = 0; i < c->files; i++) close(c->file[i].fd);
    free(c->file), free(c->place);
    memset(c, 0, sizeof *c);
}

// ---- memory --------------------------------------------------------------------------------------------------------

int64_t gx_record_cache_memory(int64_t bytes, int64_t most) { return most * gx_round_up(bytes, 64); }

void gx_record_cache_open_memory(GxRecordCache *c, void *memory, int64_t bytes, int64_t most)
{
    memset(c, 0, sizeof *c);
    c->memory = (char *)memory, c->bytes = bytes, c->most = most;
}

static char *gx__record_memory(const GxRecordCache *c, int64_t number)
{
    return c->memory + number * gx_round_up(c->bytes, 64);
}

// ---- records -------------------------------------------------------------------------------------------------------

static int gx__record_read_file(const GxRecordCache *c, const GxRecordPlace *p, void *out)
{
    const GxRecordFile *f = &c->file[p->file];
    const int64_t at = gx__record_offset(c, p->number);
    gx__RecordBegin begin;
    GxError ignored = GX_ZERO;
    return gx_file_read_at(f->fd, f->path, &begin, sizeof begin, at, &ignored) == GX_OK &&
           gx_file_read_at(f->fd, f->path, out, c->bytes, at + (int64_t)sizeof begin, &ignored) == GX_OK &&
           !memcmp(&begin.key, &p->key, sizeof p->key) && begin.hash == gx__record_hash_of(c, p->key, out);
}

int gx_record_cache_read(GxRecordCache *c, GxRecordKey key, void *out)
{
    const GxRecordPlace *p = gx__record_place(c, key);
    if (!p) return 0;
    if (c->memory) memcpy(out, gx__record_memory(c, p->number), (size_t)c->bytes);
    else if (!gx__record_read_file(c, p, out)) {
        c->damaged++;
        return 0;
    }
    c->found_all++;
    return 1;
}

// A record that is only partly written is removed again.
static int gx__record_write_file(GxRecordCache *c, GxRecordKey key, int64_t number, const void *record)
{
    GxRecordFile *f = &c->file[0];
    const int64_t at = gx__record_offset(c, number);
    gx__RecordBegin begin = GX_ZERO;
    begin.key = key, begin.hash = gx__record_hash_of(c, key, record);
    // extends the file by a whole record first, so that a record is complete if the file is long enough
    if (gx_file_write_at(f->fd, f->path, "", 1, at + gx_record_cache_stride(c->bytes) - 1, &c->error) == GX_OK &&
        gx_file_write_at(f->fd, f->path, record, c->bytes, at + (int64_t)sizeof begin, &c->error) == GX_OK &&
        gx_file_write_at(f->fd, f->path, &begin, sizeof begin, at, &c->error) == GX_OK)
        return 1;
    c->is_full = 1;
    if (number == f->records && ftruncate(f->fd, (off_t)at) != 0) return 0; // its hash is wrong then
    return 0;
}

int gx_record_cache_write(GxRecordCache *c, GxRecordKey key, const void *record)
{
    const GxRecordPlace *p = gx__record_place(c, key);
    int64_t *records = c->memory ? &c->records : c->file ? &c->file[0].records : NULL;
    const int is_there = p && p->file == 0;
    if (!records || c->is_full || c->most == 0) return 0;
    if (!is_there && *records >= c->most) c->is_full = 1;
    if (c->is_full) return 0;
    const int64_t number = is_there ? p->number : *records;
    if (c->memory) memcpy(gx__record_memory(c, number), record, (size_t)c->bytes);
    else if (!gx__record_write_file(c, key, number, record)) return 0;
    if (!is_there && gx__record_note(c, key, 0, number, &c->error) != GX_OK) {
        c->is_full = 1;
        return 0;
    }
    *records += !is_there;
    c->written++;
    return 1;
}
#endif
