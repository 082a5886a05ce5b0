// event_file.h: writes event files for TensorBoard without a library: the scalars of a step, texts, and the step at
// which a resumed run restarts.
//
//     GxEventFile f = GX_ZERO;
//     GX_TRY(gx_event_file_open(&f, "out/runs", err));  // out/runs/2026-01-31_23-59-59_host/events.out.tfevents.…
//     GX_TRY(gx_event_start(&f, 101, err));             // events of earlier files from step 101 on become void
//     const GxEventScalar scalars[] = {{"train/loss", 1.5}, {"train/learning_rate", 1e-3}};
//     GX_TRY(gx_event_scalars(&f, 110, scalars, 2, err));
//     gx_event_file_close(&f);
//
// A file is a list of records (TFRecord): bytes of the data (8), the masked CRC-32C of these 8 bytes, the data, and
// their masked CRC-32C; little endian. The data are a protocol buffer, Event: wall_time 1 (double), step 2 (varint),
// and one of file_version 3, summary 5, session_log 7. A Summary has a Value 1 for each scalar (tag 1, simple_value 2),
// or for a text (tag 1, metadata 9, tensor 8).
//
// Each call makes one record and one write, so that TensorBoard sees it at once. A killed process can leave only its
// last record incomplete, and readers stop before it. A record that cannot be written is removed and lost: the file
// ends with the previous one, and the next call continues there.
//
// It does not write histograms, images, or graphs, and it does not sync: after a crash of the machine the end may be
// missing.
//
// Sources: RFC 3720, B.4 (CRC-32C); tensorflow's lib/io/record_writer.h (framing, mask), event.proto, summary.proto.
#ifndef GX_EVENT_FILE_H
#define GX_EVENT_FILE_H
#include "../base/status.h"
GX_BEGIN

typedef struct {
    int is_open, fd;
    char path[GX_PATH];
    int64_t bytes; // of complete records
} GxEventFile;
typedef struct {
    const char *tag; // "train/loss"
    double value;    // written as fp32
} GxEventScalar;

// Makes a new file, in the folder in `runs` that has the newest one, or in a new folder named after date and host
// (`runs` is made, too). Its name follows the others in alphabetical order.
GxStatus gx_event_file_open(GxEventFile *f, const char *runs, GxError *err);
void gx_event_file_close(GxEventFile *f); // accepts a struct of zeros
// If a file is not open, the next three do nothing. Each file must begin with it: in a folder readers take the first
// one as the beginning, and only later ones as restarts.
GxStatus gx_event_start(GxEventFile *f, int64_t step, GxError *err);
GxStatus gx_event_scalars(GxEventFile *f, int64_t step, const GxEventScalar *scalar, int n, GxError *err);
GxStatus gx_event_text(GxEventFile *f, int64_t step, const char *tag, const char *text, int64_t bytes, GxError *err);
// Removes the files that this header has made in the folders of `runs`, and folders that are then empty. Other files
// are kept.
GxStatus gx_event_files_remove(const char *runs, GxError *err);

uint32_t gx_crc32c(const void *data, int64_t bytes);
uint32_t gx_crc32c_mask(uint32_t crc); // so that checksums of data that contain checksums remain useful

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_EVENT_FILE_IMPLEMENTED)
#define GX_EVENT_FILE_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../base/text.h"
#include "folder.h"

#define GX__EVENT_PREFIX "events.out.tfevents."
#define GX__EVENT_SUFFIX ".galaxy" // distinguishes them from files of other programs
enum { GX__EVENT_HOST = 80 };

// ---- the checksum --------------------------------------------------------------------------------------------------

uint32_t gx_crc32c(const void *data, int64_t bytes)
{
    const unsigned char *p = (const unsigned char *)data;
    uint32_t crc = ~0u;
    for (int64_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0); // the polynomial, bits reversed
    }
    return ~crc;
}

uint32_t gx_crc32c_mask(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8u; }

// ---- protocol buffers ----------------------------------------------------------------------------------------------

typedef struct { // grows; if memory runs out, it is unchanged, and is_whole becomes 0
    unsigned char *at;
    int64_t n, room;
    int is_missing;
} gx__EventBytes;

static void gx__event_put(gx__EventBytes *b, const void *data, int64_t n)
{
    if (b->n + n > b->room) {
        const int64_t room = 2 * (b->n + n);
        void *grown = realloc(b->at, (size_t)room);
        b->is_missing |= !grown;
        if (!grown) return;
        b->at = (unsigned char *)grown, b->room = room;
    }
    if (n) memcpy(b->at + b->n, data, (size_t)n);
    b->n += n;
}

static void gx__event_little(unsigned char *out, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (unsigned char)(x >> 8 * i);
}

static void gx__event_fixed(gx__EventBytes *b, uint64_t x, int bytes)
{
    unsigned char little[8];
    gx__event_little(little, x, bytes);
    gx__event_put(b, little, bytes);
}

static void gx__event_varint(gx__EventBytes *b, uint64_t x)
{
    do {
        const unsigned char byte = (unsigned char)((x & 0x7F) | (x > 0x7F ? 0x80 : 0));
        gx__event_put(b, &byte, 1);
        x >>= 7;
    } while (x);
}

enum { GX__EVENT_VARINT = 0, GX__EVENT_FIXED64 = 1, GX__EVENT_BYTES = 2, GX__EVENT_FIXED32 = 5 }; // wire types
static void gx__event_key(gx__EventBytes *b, int field, int wire)
{
    gx__event_varint(b, (uint64_t)(field << 3 | wire));
}

static void gx__event_int(gx__EventBytes *b, int field, int64_t x)
{
    gx__event_key(b, field, GX__EVENT_VARINT);
    gx__event_varint(b, (uint64_t)x);
}

static void gx__event_double(gx__EventBytes *b, int field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    gx__event_key(b, field, GX__EVENT_FIXED64);
    gx__event_fixed(b, bits, 8);
}

static void gx__event_float(gx__EventBytes *b, int field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    gx__event_key(b, field, GX__EVENT_FIXED32);
    gx__event_fixed(b, bits, 4);
}

static void gx__event_bytes(gx__EventBytes *b, int field, const void *data, int64_t n)
{
    gx__event_key(b, field, GX__EVENT_BYTES);
    gx__event_varint(b, (uint64_t)n);
    gx__event_put(b, data, n);
}

static void gx__event_string(gx__EventBytes *b, int field, const char *text)
{
    gx__event_bytes(b, field, text, (int64_t)strlen(text));
}

static void gx__event_message(gx__EventBytes *b, int field, gx__EventBytes *inner) // and frees `inner`
{
    b->is_missing |= inner->is_missing;
    gx__event_bytes(b, field, inner->at, inner->n);
    free(inner->at);
}

// ---- records -------------------------------------------------------------------------------------------------------

static GxStatus gx__event_write(GxEventFile *f, const gx__EventBytes *event, GxError *err)
{
    gx__EventBytes record = GX_ZERO;
    unsigned char length[8];
    gx__event_little(length, (uint64_t)event->n, 8);
    gx__event_put(&record, length, 8);
    gx__event_fixed(&record, gx_crc32c_mask(gx_crc32c(length, 8)), 4);
    gx__event_put(&record, event->at, event->n);
    gx__event_fixed(&record, gx_crc32c_mask(gx_crc32c(event->at, event->n)), 4);
    GxStatus status = event->is_missing || record.is_missing
                          ? GX_FAIL(err, GX_ERR_MEMORY, "no memory for a record of %s", f->path)
                          : gx_file_write_at(f->fd, f->path, record.at, record.n, f->bytes, err);
    if (status == GX_OK) f->bytes += record.n;
    // readers stop before an incomplete record
    else if (ftruncate(f->fd, (off_t)f->bytes) != 0) status = gx_error_code(err);
    free(record.at);
    return status;
}

// Writes an Event with the current time, whose `field` is this message. Frees the message.
static GxStatus gx__event_add(GxEventFile *f, int64_t step, int field, gx__EventBytes *message, GxError *err)
{
    gx__EventBytes event = GX_ZERO;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    gx__event_double(&event, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    if (step) gx__event_int(&event, 2, step);
    gx__event_message(&event, field, message);
    const GxStatus status = gx__event_write(f, &event, err);
    free(event.at);
    return status;
}

GxStatus gx_event_start(GxEventFile *f, int64_t step, GxError *err)
{
    gx__EventBytes log = GX_ZERO;
    if (!f->is_open) return GX_OK;
    gx__event_int(&log, 1, 1); // SessionLog.status: START
    return gx__event_add(f, step, 7, &log, err);
}

GxStatus gx_event_scalars(GxEventFile *f, int64_t step, const GxEventScalar *scalar, int n, GxError *err)
{
    gx__EventBytes summary = GX_ZERO;
    if (!f->is_open) return GX_OK;
    for (int i = 0; i < n; i++) {
        gx__EventBytes value = GX_ZERO;
        gx__event_string(&value, 1, scalar[i].tag);
        gx__event_float(&value, 2, (float)scalar[i].value);
        gx__event_message(&summary, 1, &value);
    }
    return gx__event_add(f, step, 5, &summary, err);
}

GxStatus gx_event_text(GxEventFile *f, int64_t step, const char *tag, const char *text, int64_t bytes, GxError *err)
{
    gx__EventBytes summary = GX_ZERO, value = GX_ZERO, metadata = GX_ZERO, plugin = GX_ZERO, tensor = GX_ZERO,
                   shape = GX_ZERO, dim = GX_ZERO;
    if (!f->is_open) return GX_OK;
    gx__event_string(&plugin, 1, "text"); // PluginData.plugin_name
    gx__event_message(&metadata, 1, &plugin);
    gx__event_int(&dim, 1, 1); // TensorShapeProto.Dim.size
    gx__event_message(&shape, 2, &dim);
    gx__event_int(&tensor, 1, 7); // TensorProto.dtype: DT_STRING
    gx__event_message(&tensor, 2, &shape);
    gx__event_bytes(&tensor, 8, text, bytes); // string_val
    gx__event_string(&value, 1, tag);
    gx__event_message(&value, 8, &tensor);
    gx__event_message(&value, 9, &metadata);
    gx__event_message(&summary, 1, &value);
    return gx__event_add(f, step, 5, &summary, err);
}

// ---- files ---------------------------------------------------------------------------------------------------------

static int gx__event_is_ours(const GxFolderEntry *e)
{
    return e->is_file && !strncmp(e->name, GX__EVENT_PREFIX, strlen(GX__EVENT_PREFIX)) &&
           gx_text_stem(e->name, GX__EVENT_SUFFIX) > 0;
}

// *newest: the time in the name of our newest file in the folder; -1: none.
static GxStatus gx__event_newest_file(const char *folder, int64_t *newest, GxError *err)
{
    GxFolder list;
    *newest = -1;
    GX_TRY(gx_folder_list(&list, folder, err));
    for (int i = 0; i < list.n; i++)
        if (gx__event_is_ours(&list.entry[i]))
            *newest = gx_max(*newest, strtoll(list.entry[i].name + strlen(GX__EVENT_PREFIX), NULL, 10));
    gx_folder_close(&list);
    return GX_OK;
}

// The folder in `runs` with our newest file; "": none.
static GxStatus gx__event_newest_folder(const char *runs, char folder[GX_PATH], int64_t *newest, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    char path[GX_PATH];
    folder[0] = 0, *newest = -1;
    GX_TRY(gx_folder_list(&list, runs, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        int64_t time = -1;
        if (!list.entry[i].is_folder) continue;
        status = gx_path_join(path, runs, list.entry[i].name, err);
        if (status == GX_OK) status = gx__event_newest_file(path, &time, err);
        if (status != GX_OK || time <= *newest) continue;
        *newest = time;
        memcpy(folder, path, sizeof path);
    }
    gx_folder_close(&list);
    return status;
}

static void gx__event_host(char host[GX__EVENT_HOST])
{
    if (gethostname(host, GX__EVENT_HOST) != 0 || !host[0]) snprintf(host, GX__EVENT_HOST, "host");
    host[GX__EVENT_HOST - 1] = 0;
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
}

static GxStatus gx__event_new_folder(const char *runs, time_t now, const char *host, char folder[GX_PATH], GxError *err)
{
    char name[GX__EVENT_HOST + 40], date[32];
    struct tm local;
    localtime_r(&now, &local);
    strftime(date, sizeof date, "%Y-%m-%d_%H-%M-%S", &local);
    snprintf(name, sizeof name, "%s_%s", date, host);
    GX_TRY(gx_path_join(folder, runs, name, err));
    return gx_folder_make(folder, err);
}

// TensorBoard reads the files of a folder in the order of their names, so the time in the name must increase.
GxStatus gx_event_file_open(GxEventFile *f, const char *runs, GxError *err)
{
    char folder[GX_PATH], host[GX__EVENT_HOST], name[GX__EVENT_HOST + 120];
    const time_t now = time(NULL);
    int64_t newest;
    gx__EventBytes version = GX_ZERO;
    memset(f, 0, sizeof *f);
    gx__event_host(host);
    GX_TRY(gx_folder_make(runs, err));
    GX_TRY(gx__event_newest_folder(runs, folder, &newest, err));
    if (!folder[0]) GX_TRY(gx__event_new_folder(runs, now, host, folder, err));
    snprintf(name, sizeof name, GX__EVENT_PREFIX "%010lld.%s.%ld.0" GX__EVENT_SUFFIX,
             (long long)gx_max((int64_t)now, newest + 1), host, (long)getpid());
    GX_TRY(gx_path_join(f->path, folder, name, err));
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd < 0) return GX_FAIL(err, GX_ERR_IO, "cannot create %s: %s", f->path, strerror(errno));
    f->is_open = 1;
    gx__event_put(&version, "brain.Event:2", 13);
    const GxStatus status = gx__event_add(f, 0, 3, &version, err);
    if (status != GX_OK) gx_event_file_close(f);
    return status;
}

void gx_event_file_close(GxEventFile *f)
{
    if (f->is_open) close(f->fd);
    f->is_open = 0;
}

static GxStatus gx__event_remove_from(const char *folder, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    char path[GX_PATH];
    GX_TRY(gx_folder_list(&list, folder, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        if (!gx__event_is_ours(&list.entry[i])) continue;
        status = gx_path_join(path, folder, list.entry[i].name, err);
        if (status == GX_OK && unlink(path) != 0)
            status = GX_FAIL(err, GX_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    gx_folder_close(&list);
    rmdir(folder); // stays if something else is in it
    return status;
}

GxStatus gx_event_files_remove(const char *runs, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    char path[GX_PATH];
    if (!gx_path_is_folder(runs)) return GX_OK;
    GX_TRY(gx_folder_list(&list, runs, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        int64_t newest = -1;
        if (!list.entry[i].is_folder) continue;
        status = gx_path_join(path, runs, list.entry[i].name, err);
        if (status == GX_OK) status = gx__event_newest_file(path, &newest, err);
        if (status == GX_OK && newest >= 0) status = gx__event_remove_from(path, err);
    }
    gx_folder_close(&list);
    rmdir(runs); // stays if something else is in it
    return status;
}
#endif
