// side_cache.h: a cache of layer outputs for --tuning side_only. A side network (model/side.h) reads the outputs of the
// model's layers, and training does not change them. So they are stored when they are first computed; from then on the
// layers of the model are not run.
//
// Every epoch has the samples of the first one (GxSessionExtra.sample). The order of its micro-batches differs from
// epoch to epoch, but a micro-batch always has the same samples. So every rank meets its stored samples again, and
// outputs that are loaded have the bits of those that were computed, in the same micro-batch.
//
// A sample's record is h_1 to h_N [layers, rows, C], for those of its rows that this rank has. Its key is a hash of
// what the model sees of the sample: tokens, types, positions, documents. The file's key covers the weights, the
// configuration, the dtype and this rank's part of the model (data/record_cache.h). So a record that is found is right,
// whatever else has changed. A micro-batch is taken from the cache if all ranks that compute it have all of its
// samples, which they decide together; otherwise it is computed, and the missing samples are stored. Validations run
// the whole model.
//
// Memory: one micro-batch's records in the host's memory, and one layer's rows if the device has a memory of its own;
// with --side_cache memory all records of this rank. On disk: output_dir/side_cache/rank-<r>.rows, or the same file in
// --side_cache_dir.
#ifndef GX_SIDE_CACHE_H
#define GX_SIDE_CACHE_H
#include "../data/record_cache.h"
#include "session.h"
GX_BEGIN

typedef struct GxSideCache {
    int in_memory, on_disk; // where the records are; neither: nothing is stored
    int64_t epoch;          // micro-batches of an epoch; 0: unknown, in a dry run
    // sizes
    int64_t layers, rows, row_bytes; // of a sample, on this rank
    int64_t bytes;                   // of a sample's record
    int64_t samples;                 // that this rank will have stored in the end
    // resources
    GxUnitCache hooks;
    GxRecordCache records;
    void *memory;
    char folder[GX_PATH];
    // of the current micro-batch
    char *stage;      // [B][bytes]: records on their way to or from the cache
    char *host_copy;  // host copy of a layer's output, if the device has a memory of its own
    int32_t *column;  // what the model sees of a sample, to be hashed
    GxRecordKey *key; // [B]
    uint8_t *is_kept; // [B]
    int next;         // the layer that is written next
    // warnings that were given, and figures for the next line of the report
    int said_full;
    int said_damaged;
    int64_t number;                     // of the current epoch, from 0
    int64_t steps, micro_batches, hits; // of this epoch, in this process
    double since;                       // seconds of training when the epoch began
    int64_t shared[2];                  // micro-batches and hits since the last line of progress
} GxSideCache;

// A watcher that extends the sessions of a run of --tuning side_only (run.h): it counts steps, and reports at the end
// of an epoch. In other runs it does nothing. Refuses a task that does not know how many samples an epoch has, except
// in a dry run.
GxStatus gx_side_cache_watch(GxTrainRun *r, GxError *err);
// Before the run takes the output folder: refuses unsuitable folders, files and amounts of memory. Called by all ranks.
GxStatus gx_side_cache_refuse(GxSession *s);
// Once the weights are loaded and the output folder exists; called by all ranks. disk: bytes that others (checkpoints)
// will need on the disk; if too few are left, a warning says so, and fewer samples are stored.
GxStatus gx_side_cache_open(GxSession *s, int64_t disk);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_SIDE_CACHE_IMPLEMENTED)
#define GX_SIDE_CACHE_IMPLEMENTED
#include <errno.h>
#include <sys/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "../data/dataset.h"
#include "../io/folder.h"
#include "../ops/memory.h"
#include "reporter.h"
#include "checkpoint.h"
#include "output.h"

#define GX__SIDE_CACHE_FILE "rank-%d.rows"
enum { GX__SIDE_CACHE_NAME = 40 };

// ---- which samples --------------------------------------------------------------------------------------------------

// The side cache of this session; NULL: it has none.
static GxSideCache *gx__side_cache_of(const GxSession *s) { return (GxSideCache *)s->extra.self; }

static int64_t gx__side_cache_sample(const void *self, const GxSession *s, int64_t number)
{
    const GxSideCache *c = (const GxSideCache *)self;
    const int64_t epoch = number / c->epoch, at = number % c->epoch; // the first epoch: in order
    const int64_t then = epoch == 0 ? at : gx_permute((uint64_t)s->run->o.seed, epoch, c->epoch, at);
    return gx_split_total(&s->batch_split) * then;
}

// ---- a micro-batch --------------------------------------------------------------------------------------------------

static void gx__side_cache_put(int32_t *column, int64_t *n, const int32_t *from, int64_t each, int64_t i, int64_t T,
                               int64_t B)
{
    column[(*n)++] = from != NULL;
    for (int64_t r = 0; from && r < T; r++)
        for (int64_t k = 0; k < each; k++) column[(*n)++] = from[(r * B + i) * each + k];
}

// The key of sample i. The batch's arrays are in the host's memory.
static GxRecordKey gx__side_cache_key(GxSideCache *c, const GxBatch *b, int64_t i)
{
    int64_t n = 0;
    gx__side_cache_put(c->column, &n, b->tokens, 1, i, b->T, b->B);
    gx__side_cache_put(c->column, &n, b->types, 1, i, b->T, b->B);
    gx__side_cache_put(c->column, &n, b->positions, 1, i, b->T, b->B);
    gx__side_cache_put(c->column, &n, b->documents, 2, i, b->T, b->B);
    return gx_record_key(c->column, n * (int64_t)sizeof *c->column);
}

static int gx__side_cache_find(GxContext *g, void *session, const GxBatch *b)
{
    GxSession *s = (GxSession *)session;
    GxSideCache *c = gx__side_cache_of(s);
    GxBatch host_copy = *b;
    void *host = gx_session_host_block(s, b->number);
    int64_t lacks = 0;
    s->run->task->batch.layout(s->run->self, &host_copy, host, host);
    for (int64_t i = 0; i < b->B; i++) {
        c->key[i] = gx__side_cache_key(c, &host_copy, i);
        c->is_kept[i] = (uint8_t)gx_record_cache_read(&c->records, c->key[i], c->stage + i * c->bytes);
        lacks |= !c->is_kept[i];
    }
    c->next = 0;
    gx_at(g, -1, "side_cache");
    gx_all_reduce(g, GX_AXIS_PP | GX_AXIS_CP | GX_AXIS_TP, GX_MAX, &lacks, 1, GX_I64);
    c->micro_batches++, c->hits += !lacks, c->shared[0]++, c->shared[1] += !lacks;
    if (c->records.damaged && !c->said_damaged)
        gx_log(&g->log, GX_LOG_WARNING,
               "rank %d: a record of the side cache in %s is damaged, or another run has written to it; it is computed "
               "again, and so is every other such record",
               g->rank, c->folder);
    c->said_damaged = c->records.damaged > 0;
    return !lacks;
}

// x is [rows, B], so a sample's rows are B apart; in its record they follow each other.
static char *gx__side_cache_row(const GxSideCache *c, int64_t i, int layer, int64_t row)
{
    return c->stage + i * c->bytes + ((int64_t)layer * c->rows + row) * c->row_bytes;
}

static void gx__side_cache_read(GxContext *g, void *session, const GxBatch *b, int layer, GxRows x)
{
    const GxSideCache *c = gx__side_cache_of((const GxSession *)session);
    char *to = c->host_copy ? c->host_copy : (char *)x.data;
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t i = 0; i < b->B; i++)
            memcpy(to + (row * b->B + i) * c->row_bytes, gx__side_cache_row(c, i, layer, row), (size_t)c->row_bytes);
    gx_to_device(g, x.data, to, gx_rows_bytes(x));
}

static void gx__side_cache_keep(GxSession *s, int64_t B)
{
    GxSideCache *c = gx__side_cache_of(s);
    for (int64_t i = 0; i < B; i++)
        if (!c->is_kept[i]) gx_record_cache_write(&c->records, c->key[i], c->stage + i * c->bytes);
    if (!gx_error_code(&c->records.error) || c->said_full) return;
    c->said_full = 1;
    gx_log(&s->g->log, GX_LOG_WARNING,
           "rank %d: the side cache takes no more samples: %s; the training continues, and the other samples are "
           "computed in each epoch",
           s->g->rank, c->records.error.message);
}

static void gx__side_cache_write(GxContext *g, void *session, const GxBatch *b, int layer, GxRows x)
{
    GxSession *s = (GxSession *)session;
    GxSideCache *c = gx__side_cache_of(s);
    const char *from = c->host_copy ? c->host_copy : (const char *)x.data;
    if (c->records.is_full || layer != c->next) return; // an incomplete micro-batch is not stored
    gx_to_host(g, c->host_copy ? c->host_copy : x.data, x.data, gx_rows_bytes(x));
    if (gx_failed(g)) return;
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t i = 0; i < b->B; i++)
            memcpy(gx__side_cache_row(c, i, layer, row), from + (row * b->B + i) * c->row_bytes, (size_t)c->row_bytes);
    c->next = layer + 1;
    if (c->next == c->layers) gx__side_cache_keep(s, b->B);
}

// ---- memory --------------------------------------------------------------------------------------------------------

static int64_t gx__side_cache_run(const GxSession *s) // number of micro-batches in the whole run
{
    const int64_t of_step = s->run->o.gradient_accumulation_steps;
    return s->run->o.max_steps > INT64_MAX / of_step ? INT64_MAX : s->run->o.max_steps * of_step;
}

static void gx__side_cache_measure(GxSession *s)
{
    GxSideCache *c = gx__side_cache_of(s);
    const GxModel *m = &s->model;
    const GxRows x = gx_stream_rows(m, s->run->o.seq_len, 1, NULL); // of a sample
    const int64_t B = gx_session_samples(s), run = gx__side_cache_run(s);
    c->layers = 0;
    for (int u = 1; u < m->units; u++) c->layers += gx_side_is_beside(m, u);
    c->rows = x.rows, c->row_bytes = x.cols * gx_dtype_size(x.dtype), c->bytes = c->layers * c->rows * c->row_bytes;
    c->samples = gx_min(c->epoch ? gx_min(c->epoch, run) : run, INT64_MAX / 2 / (B * c->bytes)) * B;
}

static void gx__side_cache_allocate(void *self, GxSession *s, GxContext *g)
{
    GxSideCache *c = (GxSideCache *)self;
    GxArena *host = gx_host_arena(g);
    const int64_t T = s->run->o.seq_len, B = gx_session_samples(s);
    if (gx_failed(g)) return;
    gx__side_cache_measure(s);
    if (!c->in_memory && !c->on_disk) return;
    c->stage = (char *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, B * c->bytes);
    if (!g->device->shares_host_memory)
        c->host_copy = (char *)gx_allocate_from(g, host, GX_MEM_ACTIVATIONS, B * c->rows * c->row_bytes);
    c->column = (int32_t *)gx_allocate_from(g, host, GX_MEM_WORKSPACE, (5 * T + 4) * (int64_t)sizeof *c->column);
    c->key = (GxRecordKey *)gx_allocate_from(g, host, GX_MEM_WORKSPACE, B * (int64_t)sizeof *c->key);
    c->is_kept = (uint8_t *)gx_allocate_from(g, host, GX_MEM_WORKSPACE, B);
    if (c->in_memory)
        c->memory = gx_allocate_from(g, host, GX_MEM_WORKSPACE, gx_record_cache_memory(c->bytes, c->samples));
}

static int gx__side_cache_neighbours(const GxSession *s) // number of ranks on this machine
{
    return s->g->comm ? (int)gx_max(1, s->g->comm->local_ranks) : 1;
}

// The folder, and in it the path of this rank's file.
static GxStatus gx__side_cache_path(const GxSession *s, char folder[GX_PATH], char path[GX_PATH], GxError *err)
{
    const GxTrainRun *r = s->run;
    char name[GX__SIDE_CACHE_NAME];
    const char *dir = r->o.tuning.side_cache_dir;
    if (dir[0]) snprintf(folder, GX_PATH, "%s", dir);
    else GX_TRY(gx_path_join(folder, r->o.output_dir, GX_SIDE_CACHE_FOLDER, err));
    snprintf(name, sizeof name, GX__SIDE_CACHE_FILE, s->g->rank);
    return gx_path_join(path, folder, name, err);
}

// Refuses a folder that cannot be written to; if it does not exist yet, the nearest existing one above it.
static GxStatus gx__side_cache_check_folder(const char *folder, GxError *err)
{
    char at[GX_PATH];
    struct stat st;
    snprintf(at, sizeof at, "%s", folder);
    while (lstat(at, &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        char *slash = strrchr(at, '/');
        if (!slash) snprintf(at, sizeof at, ".");
        else slash[slash == at] = 0;
    }
    if (access(at, W_OK | X_OK) == 0 && gx_path_is_folder(at)) return GX_OK;
    return GX_FAIL(err, GX_ERR_IO, "%s cannot be the folder of a side cache: %s is %s; choose another --side_cache_dir",
                   folder, at, gx_path_is_folder(at) ? "a folder that cannot be written to" : "not a folder");
}

static GxStatus gx__side_cache_refuse_files(GxSession *s)
{
    char folder[GX_PATH], path[GX_PATH];
    GxError *err = &s->g->error;
    if (!gx__side_cache_of(s) || !gx__side_cache_of(s)->on_disk) return gx_status(s->g);
    gx__side_cache_path(s, folder, path, err);
    if (s->run->o.tuning.side_cache_dir[0] && !gx_error_code(err)) gx__side_cache_check_folder(folder, err);
    if (!gx_error_code(err)) gx_record_cache_check(path, err);
    gx_at(s->g, -1, "side_cache");
    gx_barrier(s->g, GX_AXIS_ALL); // on a failed context this tells the other ranks
    return gx_status(s->g);
}

static GxStatus gx__side_cache_refuse_memory(const GxSession *s, GxError *err)
{
    const GxSideCache *c = gx__side_cache_of(s);
    const char *dir = s->run->o.tuning.side_cache_dir, *last = strrchr(dir, '/');
    GxError why = GX_ZERO;
    // the name of a checkpoint is refused, too, since the run will make those later
    if (c && dir[0] && (gx_output_check_place(dir, &why) != GX_OK || gx_checkpoint_number(last ? last + 1 : dir) >= 0))
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "--side_cache_dir %s is the folder of a checkpoint, and is removed with it; choose another folder", dir);
    const GxPlanPlace *machine = &s->plan.machine;
    const int64_t bytes = c ? gx_record_cache_memory(c->bytes, c->samples) * gx__side_cache_neighbours(s) : 0;
    if (!c || !c->in_memory || !machine->has || machine->bytes <= machine->has || machine->bytes - bytes > machine->has)
        return GX_OK;
    return GX_FAIL(err, GX_ERR_MEMORY,
                   "the plan needs %.1f MB on this machine, %.1f of them for the side cache, but the system has %.1f "
                   "left; use --side_cache disk",
                   (double)machine->bytes / 1e6, (double)bytes / 1e6, (double)machine->has / 1e6);
}

GxStatus gx_side_cache_refuse(GxSession *s)
{
    GX_TRY(gx__side_cache_refuse_memory(s, &s->g->error));
    return gx__side_cache_refuse_files(s);
}

// ---- the files -----------------------------------------------------------------------------------------------------

// A hash of all that the records depend on, other than the samples.
static uint64_t gx__side_cache_about(const GxSession *s, uint64_t base_hash, GxError *err)
{
    const GxTrainRun *r = s->run;
    const GxSideCache *c = gx__side_cache_of(s);
    const GxModel *m = &s->model;
    const GxFamily *f = r->family;
    const int is_cut = s->mode->methods.con == GX_METHOD_SP && m->members > 1;
    const int64_t word[] = {(int64_t)base_hash,
                            (int64_t)m->store.dtype,
                            r->o.seq_len,
                            c->layers,
                            c->rows,
                            c->row_bytes,
                            gx_tuning_quantize(&r->o.tuning),
                            m->members,
                            is_cut ? m->sequence.begin[m->member] : 0};
    const int64_t bytes = gx_fields_bytes(f->fields, f->n_fields);
    char methods[60] = "", *config = (char *)malloc((size_t)bytes);
    uint64_t hash = gx_hash(GX_HASH_START, word, sizeof word);
    gx_methods_text(s->mode->methods, methods, sizeof methods);
    hash = gx_hash(hash, methods, (int64_t)strlen(methods));
    hash = gx_hash(hash, f->name, (int64_t)strlen(f->name));
    if (!config) GX_FAIL(err, GX_ERR_MEMORY, "no memory for a configuration");
    else gx_fields_pack(f->fields, f->n_fields, r->model_config, config), hash = gx_hash(hash, config, bytes);
    free(config);
    return hash;
}

// Files that no rank of this run reads: of more ranks, of another part of the model, or of another model. In the
// run's own folder, which is locked, nobody else needs them; in another folder they may belong to another run.
typedef struct {
    int n, is_own; // number of files; whether the folder is the run's own, so that they are removed
    double mb;
    char first[GX__SIDE_CACHE_NAME];
} gx__SideCacheLeft;

static void gx__side_cache_leave(const GxSession *s, const char *name, const char *path, gx__SideCacheLeft *left)
{
    char exact[GX__SIDE_CACHE_NAME];
    int rank = -1;
    int64_t size = 0;
    if (!gx_session_is_first(s) || sscanf(name, GX__SIDE_CACHE_FILE, &rank) != 1 || rank < s->g->world) return;
    snprintf(exact, sizeof exact, GX__SIDE_CACHE_FILE, rank);
    if (strcmp(name, exact) || !gx_record_cache_is_other(&gx__side_cache_of(s)->records, path, &size)) return;
    if (left->is_own && unlink(path) != 0) return;
    if (!left->n++) snprintf(left->first, sizeof left->first, "%s", exact);
    left->mb += (double)size / 1e6;
}

static void gx__side_cache_tell_left(const GxSession *s, const gx__SideCacheLeft *left)
{
    char more[40] = "";
    if (left->n > 1) snprintf(more, sizeof more, " and %d more", left->n - 1);
    if (left->n)
        gx_log(&s->g->log, GX_LOG_WARNING,
               "%s/%s%s, %.1f MB, of ranks that this run does not have, %s for another model, or another part of it%s",
               gx__side_cache_of(s)->folder, left->first, more, left->mb, left->n > 1 ? "are" : "is",
               left->is_own ? "; removed" : "; not read, and left for other runs; remove what no run needs");
}

static void gx__side_cache_find_others(GxSession *s, const char *own)
{
    GxSideCache *c = gx__side_cache_of(s);
    GxFolder list = GX_ZERO;
    GxError ignored = GX_ZERO; // files of other ranks may disappear meanwhile
    gx__SideCacheLeft left = GX_ZERO;
    char path[GX_PATH];
    left.is_own = !s->run->o.tuning.side_cache_dir[0];
    if (gx_folder_list(&list, c->folder, &ignored) != GX_OK) return;
    for (int i = 0; i < list.n; i++) {
        const char *name = list.entry[i].name;
        if (!list.entry[i].is_file || !gx_output_is_side_cache(name) || !strcmp(name, own)) continue;
        gx_error_clear(&ignored);
        if (gx_path_join(path, c->folder, name, &ignored) != GX_OK) continue;
        gx_record_cache_inspect(&c->records, path, &ignored);
        gx__side_cache_leave(s, name, path, &left);
    }
    gx__side_cache_tell_left(s, &left);
    gx_folder_close(&list);
}

// Limits the number of records to what fits on the disk: what is free, less what others need, divided by the ranks of
// this machine.
static void gx__side_cache_fit(GxSession *s, int64_t others)
{
    GxSideCache *c = gx__side_cache_of(s);
    const int64_t stride = gx_record_cache_stride(c->bytes),
                  there = c->records.n; // some of them may be of other data
    struct statvfs disk;
    if (c->records.most == 0) return; // another run writes the file
    c->records.most = c->records.file[0].records + c->samples;
    if (statvfs(c->folder, &disk) != 0) return; // the file system does not say what is free
    const int64_t left = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize,
                  fit = gx_max(0, left - others) / gx__side_cache_neighbours(s) / stride;
    if (fit >= c->samples - there) return;
    c->records.most = c->records.file[0].records + fit;
    if (gx_session_is_first(s))
        gx_log(
            &s->g->log, GX_LOG_WARNING,
            "the side cache needs %.1f MB on each rank, but the disk of %s has only %.1f MB left beside checkpoints: "
            "of %ld samples that are not there yet, %ld are kept, and the others are recomputed in each epoch",
            (double)c->samples * (double)stride / 1e6, c->folder, (double)gx_max(0, left - others) / 1e6,
            (long)c->samples, (long)fit);
}

static GxStatus gx__side_cache_open_files(GxSession *s, uint64_t about, int64_t disk)
{
    GxSideCache *c = gx__side_cache_of(s);
    GxContext *g = s->g;
    GxError *err = &g->error;
    GxRecordsFound found = GX_RECORDS_NEW;
    char path[GX_PATH];
    if (!gx_failed(g) && gx__side_cache_path(s, c->folder, path, err) == GX_OK &&
        gx_folder_make(c->folder, err) == GX_OK)
        gx_record_cache_open(&c->records, path, c->bytes, about, INT64_MAX, &found, err);
    gx_barrier(g, GX_AXIS_ALL); // a failure is told to the other ranks; after it all files are open
    GX_TRY(gx_status(g));
    if (found == GX_RECORDS_OTHER)
        gx_log(&g->log, GX_LOG_WARNING,
               "%s is for another model, another part of it, or another version, and is rewritten", path);
    if (found == GX_RECORDS_IN_USE)
        gx_log(&g->log, GX_LOG_WARNING, "%s is being written by another run; what it has is read, but nothing is added",
               path);
    gx__side_cache_find_others(s, strrchr(path, '/') + 1);
    gx__side_cache_fit(s, disk);
    if (c->records.n && gx_session_is_first(s))
        gx_report(g, "side cache: %ld sample%s in %s\n", (long)c->records.n, c->records.n == 1 ? " is" : "s are",
                  c->folder);
    return gx_status(g);
}

GxStatus gx_side_cache_open(GxSession *s, int64_t disk)
{
    GxTrainRun *r = s->run;
    GxSideCache *c = gx__side_cache_of(s);
    GxContext *g = s->g;
    uint64_t base_hash = r->base_hash.all;
    if (!c) return GX_OK;
    c->number = r->at.samples / gx_split_total(&s->batch_split) / c->epoch;
    c->since = r->clock.training_seconds; // of earlier sessions
    if (c->in_memory) gx_record_cache_open_memory(&c->records, c->memory, c->bytes, c->samples);
    if (!c->on_disk) return GX_OK;
    gx_at(g, -1, "side_cache");
    gx_broadcast(g, GX_AXIS_ALL, 0, &base_hash, 1, GX_I64); // after it, rank 0 has made the output folder
    const uint64_t about = gx__side_cache_about(s, base_hash, &g->error);
    return gx__side_cache_open_files(s, about, disk);
}

// ---- in words ------------------------------------------------------------------------------------------------------

static double gx__side_cache_share(void *self)
{
    GxSideCache *c = (GxSideCache *)self;
    const double share = c->shared[0] ? (double)c->shared[1] / (double)c->shared[0] : 0;
    c->shared[0] = c->shared[1] = 0;
    return share;
}

// A line about the current epoch.
static void gx__side_cache_tell(void *self, GxSession *s)
{
    GxTrainRun *r = s->run;
    GxSideCache *c = (GxSideCache *)self;
    if (!c->steps || !gx_session_is_first(s)) return;
    char kept[200] = "nothing is kept";
    // validations and saving are not counted; a device may still be busy with the last step
    const double now =
        r->clock.training_seconds + (r->clock.interval_steps ? gx_seconds() - r->clock.interval_start : 0);
    if (c->in_memory || c->on_disk)
        snprintf(kept, sizeof kept, "%.0f%% of the micro-batches came from it; %ld sample%s, %.1f MB, %s there",
                 100 * (double)c->hits / (double)gx_max(1, c->micro_batches), (long)c->records.n,
                 gx_text_s(c->records.n), (double)c->records.n * (double)c->bytes / 1e6,
                 c->records.n == 1 ? "is" : "are");
    gx_report(s->g, "side cache, epoch %ld: %ld step%s of %.3f s: %s\n", (long)c->number + 1, (long)c->steps,
              gx_text_s(c->steps), (now - c->since) / (double)c->steps, kept);
    c->steps = c->micro_batches = c->hits = 0, c->since = now;
}

static void gx__side_cache_describe(const void *self, const GxSession *s, FILE *out)
{
    const GxSideCache *c = (const GxSideCache *)self;
    const char *of = s->g->world > 1 ? " of rank 0" : "";
    if (!c->in_memory && !c->on_disk) {
        fprintf(out, "side cache: none; all epochs have the samples of the first\n");
        return;
    }
    fprintf(out, "side cache: %.3f MB a sample, %s%ld sample%s%s: %.1f MB %s\n", (double)c->bytes / 1e6,
            c->epoch ? "" : "at most the run's ", (long)c->samples, gx_text_s(c->samples), of,
            (double)c->samples * (double)c->bytes / 1e6,
            c->in_memory ? "of memory, which the plan has" : "on the disk");
}

// ---- as a watcher --------------------------------------------------------------------------------------------------

static GxStatus gx__side_cache_extend(void *self, GxSession *s, int64_t samples, int64_t all)
{
    GxTrainRun *r = s->run;
    GxSideCache *c = (GxSideCache *)self;
    GxSessionExtra *extra = &s->extra;
    if (r->chosen.tuning != GX_TUNING_SIDE_ONLY || gx_options_is_inference(&r->o)) return GX_OK;
    if (samples < 1 && !r->o.dry_run)
        return GX_FAIL(&s->g->error, GX_ERR_UNSUPPORTED,
                       "--tuning side_only stores what the model computes for the samples of an epoch, but --task %s "
                       "does not say how many those are; use --tuning side",
                       r->task->name);
    memset(c, 0, sizeof *c);
    c->epoch = samples < 1 ? 0 : gx_max(1, samples / all);
    c->in_memory = r->chosen.side_cache == GX_SIDE_CACHE_MEMORY,
    c->on_disk = r->chosen.side_cache == GX_SIDE_CACHE_DISK;
    c->hooks.find = gx__side_cache_find, c->hooks.read = gx__side_cache_read, c->hooks.write = gx__side_cache_write;
    c->hooks.user = s;
    extra->self = c, extra->epoch = c->epoch;
    extra->cache = c->in_memory || c->on_disk ? &c->hooks : NULL;
    extra->allocate = gx__side_cache_allocate, extra->sample = gx__side_cache_sample;
    extra->share = gx__side_cache_share, extra->describe = gx__side_cache_describe, extra->tell = gx__side_cache_tell;
    return GX_OK;
}

static void gx__side_cache_stepped(void *self, GxSession *s)
{
    GxSideCache *c = (GxSideCache *)self;
    if (!gx__side_cache_of(s)) return;
    c->steps++;
    const int64_t next = s->run->at.samples / gx_split_total(&s->batch_split) / c->epoch; // of the next micro-batch
    if (next == c->number) return;
    gx__side_cache_tell(c, s);
    c->number = next;
}

static void gx__side_cache_closed(void *self, GxSession *s)
{
    if (gx__side_cache_of(s)) gx_record_cache_close(&((GxSideCache *)self)->records);
}

GxStatus gx_side_cache_watch(GxTrainRun *r, GxError *err)
{
    GxWatcher *w = gx_watchers_add(&r->watchers, sizeof(GxSideCache), err);
    if (!w) return gx_error_code(err);
    w->stepped = gx__side_cache_stepped, w->closed = gx__side_cache_closed;
    r->extends.open = gx__side_cache_extend, r->extends.self = w->self;
    return GX_OK;
}
#endif
