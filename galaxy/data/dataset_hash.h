// dataset_hash.h: a hash of a whole text, by which ranks check that they train on the same text, and a resumed run that
// it continues on the same one.
//
// Every byte counts. A block's hash is the hash of the FNV-1a hashes of its GX_DATASET_LANES lanes (byte i belongs to
// lane i % GX_DATASET_LANES); the text's hash is that of its blocks' hashes. So threads can share the blocks, and a
// processor can compute many lanes at once, without an effect on the result.
//
//     uint64_t hash;
//     GX_TRY(gx_dataset_hash(&d, g->threads, &hash, err));
//
// The hash of a file of tokens with checksums is that of its header, which contains them; nothing else is read.
//
// A text of at least GX_DATASET_CACHED bytes is hashed once: the hash is stored in text.txt.galaxy.json beside it, if
// possible. It is valid while the file is the one that was hashed, by its size, its times to the nanosecond and its
// inode. A hash is not stored for a file that was changed less than GX_DATASET_SETTLED seconds ago, since it might
// change again within a tick of the file system's clock. Several ranks may write the cache at once, since each writes
// the whole file.
#ifndef GX_DATASET_HASH_H
#define GX_DATASET_HASH_H
#include "dataset.h"
GX_BEGIN

enum {
    GX_DATASET_BLOCK = 1 << 20,  // bytes
    GX_DATASET_LANES = 64,       // per block
    GX_DATASET_CACHED = 1 << 26, // bytes
    GX_DATASET_SETTLED = 2       // seconds
};
#define GX_DATASET_CACHE ".galaxy.json" // appended to the text's path

GxStatus gx_dataset_hash(const GxDataset *d, int threads, uint64_t *hash, GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_DATASET_HASH_IMPLEMENTED)
#define GX_DATASET_HASH_IMPLEMENTED
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "../io/json_fields.h"

// ---- the hash ------------------------------------------------------------------------------------------------------

// n: a multiple of the lanes, except at the end of a text.
static void gx__dataset_hash_lanes(uint64_t lane[GX_DATASET_LANES], const unsigned char *p, int64_t n)
{
    uint64_t h[GX_DATASET_LANES]; // a copy, so that the compiler knows that p does not alias it
    int64_t at = 0;
    memcpy(h, lane, sizeof h);
    for (; at + GX_DATASET_LANES <= n; at += GX_DATASET_LANES)
        for (int k = 0; k < GX_DATASET_LANES; k++) h[k] = (h[k] ^ p[at + k]) * GX_HASH_PRIME;
    for (int k = 0; at + k < n; k++) h[k] = (h[k] ^ p[at + k]) * GX_HASH_PRIME;
    memcpy(lane, h, sizeof h);
}

static GxStatus gx__dataset_hash_block(const GxDataset *d, int64_t block, uint64_t *hash, GxError *err)
{
    unsigned char chunk[1 << 16];
    uint64_t lane[GX_DATASET_LANES];
    const int64_t begin = block * GX_DATASET_BLOCK, end = gx_min(d->bytes, begin + GX_DATASET_BLOCK);
    for (int k = 0; k < GX_DATASET_LANES; k++) lane[k] = GX_HASH_START;
    for (int64_t at = begin; at < end; at += (int64_t)sizeof chunk) {
        const int64_t n = gx_min((int64_t)sizeof chunk, end - at);
        GX_TRY(gx_dataset_read(d, at, n, chunk, err));
        gx__dataset_hash_lanes(lane, chunk, n);
    }
    *hash = gx_hash(GX_HASH_START, lane, sizeof lane);
    return GX_OK;
}

static GxStatus gx__dataset_hash_all(const GxDataset *d, int threads, uint64_t *hash, GxError *err)
{
    const int64_t blocks = gx_ceil_div(d->bytes, GX_DATASET_BLOCK);
    uint64_t *of_block = (uint64_t *)calloc((size_t)blocks, sizeof *of_block);
    (void)threads; // without OpenMP there is only one
    if (!of_block) return GX_FAIL(err, GX_ERR_MEMORY, "no memory for the hashes of %ld blocks", (long)blocks);
    GX_OMP(parallel for schedule(dynamic) num_threads(threads > 0 ? threads : 1))
    for (int64_t i = 0; i < blocks; i++)
        if (gx_error_code(err) == GX_OK) gx__dataset_hash_block(d, i, &of_block[i], err);
    *hash = gx_hash(GX_HASH_START, of_block, blocks * (int64_t)sizeof *of_block);
    free(of_block);
    return gx_error_code(err);
}

// ---- the cache -----------------------------------------------------------------------------------------------------

typedef struct { // a file's identity, and its hash
    int64_t version, bytes, mtime_ns, ctime_ns, inode, hash;
} gx__DatasetHashed;

#define GX__DATASET_HASHED(field, help)                                                                                \
    {                                                                                                                  \
#field, GX_FIELD_INT, offsetof(gx__DatasetHashed, field), NULL, help, NULL                                     \
    }
static const GxField gx__dataset_hashed[] = {
    GX__DATASET_HASHED(version, "how it was hashed"),    GX__DATASET_HASHED(bytes, "of the text"),
    GX__DATASET_HASHED(mtime_ns, "when it was written"), GX__DATASET_HASHED(ctime_ns, "when it was touched"),
    GX__DATASET_HASHED(inode, "which file it was"),      GX__DATASET_HASHED(hash, "of all its bytes"),
};

static int gx__dataset_identify(const GxDataset *d, gx__DatasetHashed *h) // 0: unknown
{
    struct stat st;
    if (fstat(d->fd, &st) != 0) return 0;
    const gx__DatasetHashed of = {
        1, (int64_t)st.st_size, gx_nanoseconds(st.st_mtim), gx_nanoseconds(st.st_ctim), (int64_t)st.st_ino, 0};
    *h = of;
    return 1;
}

static int gx__dataset_is_same(const gx__DatasetHashed *a, const gx__DatasetHashed *b) // 1: the same file
{
    return a->version == b->version && a->bytes == b->bytes && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns && a->inode == b->inode;
}

// 1: `path` contains a hash of exactly this file. 0 also if it cannot be read or is damaged.
static int gx__dataset_recall(const char *path, gx__DatasetHashed *file)
{
    gx__DatasetHashed cached = GX_ZERO;
    GxError ignored = GX_ZERO;
    GxJson *json = NULL;
    if (!gx_path_is_file(path) || gx_json_read(&json, path, 1 << 12, &ignored) != GX_OK) return 0;
    const int known = gx_json_get_fields(json, GX_FIELDS(gx__dataset_hashed), 1, &cached, path, &ignored) == GX_OK &&
                      gx__dataset_is_same(&cached, file);
    gx_json_free(json);
    if (known) file->hash = cached.hash;
    return known;
}

// If it cannot be written, the text is hashed again next time.
static void gx__dataset_remember(const char *path, const gx__DatasetHashed *file)
{
    GxError ignored = GX_ZERO;
    GxJson *json = gx_json_new_object();
    if (gx_json_set_fields(json, GX_FIELDS(gx__dataset_hashed), file, &ignored) == GX_OK)
        gx_json_write(json, path, &ignored);
    gx_json_free(json);
}

// now_ns: since 1970.
static GxStatus gx__dataset_hash_at(const GxDataset *d, int threads, int64_t now_ns, uint64_t *hash, GxError *err)
{
    gx__DatasetHashed before, after;
    char path[GX_PATH];
    const int is_cached = d->bytes >= GX_DATASET_CACHED && gx__dataset_identify(d, &before) &&
                          now_ns - before.ctime_ns >= (int64_t)GX_DATASET_SETTLED * 1000000000 &&
                          snprintf(path, GX_PATH, "%s%s", d->path, GX_DATASET_CACHE) < GX_PATH;
    if (is_cached && gx__dataset_recall(path, &before)) {
        *hash = (uint64_t)before.hash;
        return GX_OK;
    }
    GX_TRY(gx__dataset_hash_all(d, threads, hash, err));
    if (!is_cached || !gx__dataset_identify(d, &after) || !gx__dataset_is_same(&before, &after)) return GX_OK;
    after.hash = (int64_t)*hash;
    gx__dataset_remember(path, &after);
    return GX_OK;
}

GxStatus gx_dataset_hash(const GxDataset *d, int threads, uint64_t *hash, GxError *err)
{
    struct timespec now = GX_ZERO;
    if (d->file.hash) {
        *hash = d->file.hash;
        return GX_OK;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    return gx__dataset_hash_at(d, threads, gx_nanoseconds(now), hash, err);
}
#endif
