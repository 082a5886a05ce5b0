// output.h: a run's output folder: which run it is, which of its checkpoints is the newest, what may be replaced or
// removed, and that no other run writes there meanwhile.
//
//     out/  run.json  training_args.json  log.jsonl  loss.svg  checkpoint-400/  checkpoint-500/
//           abandoned/  log.jsonl  checkpoint-450/
//
// A folder holds one run. A new run gets a folder in which nothing of these names is, or says that it overwrites it.
// Which run it is says run.json; `--resume auto` goes on with the newest whole checkpoint of it, passing over torn
// ones. A run that goes on from an older checkpoint takes another way from there: the checkpoints behind it, and the
// log's lines behind it, are set apart in abandoned/, where nothing is ever removed. All of this is rank 0's.
#ifndef GX_OUTPUT_H
#define GX_OUTPUT_H
#include "../base/log.h"
#include "../io/folder.h"
GX_BEGIN

#define GX_ABANDONED "abandoned"

int64_t gx_run_draw(void); // a number that no other run has; never 0
GxStatus gx_run_write(const char *output_dir, int64_t run, GxError *err);
int64_t gx_run_read(const char *output_dir); // 0: there is none

// output_dir/checkpoint-<step>; the step of such a path, -1: it is called otherwise.
GxStatus gx_checkpoint_path(char path[GX_PATH], const char *output_dir, int64_t step, GxError *err);
int64_t gx_checkpoint_number(const char *path);

// Two runs in one folder would mix their logs and remove each other's unfinished checkpoints. The lock is on the folder
// itself and ends with the process; a file system without locks has none. *lock: its file descriptor; -1 before. Only
// who has it may tidy up, and does: what killed runs left half done is finished or removed.
GxStatus gx_output_lock(int *lock, const char *output_dir, GxError *err);

// Refuses a folder that is not this run's: another run is in it, or anything that has a name a run would write to. run
// 0: a new run. is_home: the run goes on from a checkpoint in this folder.
GxStatus gx_output_refuse_used(const char *output_dir, int64_t run, int is_home, GxError *err);
// 1: that path lies in the folder, or is it.
int gx_output_holds(const char *output_dir, const char *path);
// Removes the run in it, if there is one: its checkpoints, log, abandoned/. Folders of other programs stay.
GxStatus gx_output_clear(const char *output_dir, GxError *err);

// A run that goes on behind step `begun` may save at any later step (a signal can ask for it), at most at `last`:
// refuses what is in the way and is not this run's. What is this run's, or damaged, can be set apart.
GxStatus gx_output_refuse_in_the_way(const char *output_dir, int64_t run, int64_t begun, int64_t last, GxError *err);
// Sets apart this run's checkpoints behind `step`, and damaged ones; *moved: how many. If it is killed on its way, the
// next gx_output_lock goes on with it.
GxStatus gx_output_return(const char *output_dir, int64_t run, int64_t step, int *moved, GxError *err);

// The newest checkpoint-N of this run in output_dir whose manifest and contents hold; "" if there is none. Torn ones
// are passed over, with a warning, and so are those of other runs. run 0: of any.
GxStatus gx_checkpoint_newest(const char *output_dir, int64_t run, char newest[GX_PATH], const GxLogger *log,
                              GxError *err);
// Of this run's checkpoints up to `newest`, which was just saved, all but the last `keep` are removed. What is not ours
// (no manifest), or of another run, is left alone.
GxStatus gx_checkpoint_prune(const char *output_dir, int64_t run, int64_t newest, int64_t keep, GxError *err);

// Is there room for what will be saved? `count` checkpoints of `bytes` each, of which one is in the folder for a moment
// more than are kept. Refuses where not even one fits; warns where not all do.
GxStatus gx_output_check_room(const char *output_dir, int64_t bytes, int64_t count, const GxLogger *log, GxError *err);
// The same from a number: what the disk has left.
GxStatus gx_output_compare_room(const char *output_dir, int64_t left, int64_t bytes, int64_t count, const GxLogger *log,
                                GxError *err);

GX_END
#endif

#if defined(GALAXY_IMPLEMENTATION) && !defined(GX_OUTPUT_IMPLEMENTED)
#define GX_OUTPUT_IMPLEMENTED
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "../io/json.h"
#include "checkpoint.h"

// ---- which run it is -----------------------------------------------------------------------------------------------

int64_t gx_run_draw(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t words[3] = {t.tv_sec, t.tv_nsec, getpid()};
    return (int64_t)(gx_hash(GX_HASH_START, words, sizeof words) >> 1) | 1;
}

// returns_to -1: everything is where it belongs.
static GxStatus gx__output_write_run(const char *output_dir, int64_t run, int64_t returns_to, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, output_dir, "run.json", err));
    GxJson *json = gx_json_new_object();
    gx_json_set(json, "run", gx_json_new_int(run), err);
    if (returns_to >= 0) gx_json_set(json, "returns_to", gx_json_new_int(returns_to), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

static int64_t gx__output_read_run(const char *output_dir, const char *key, int64_t otherwise)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO; // unreadable: as if it were not there
    GxJson *json = NULL;
    int64_t value = otherwise;
    if (gx_path_join(path, output_dir, "run.json", &ignored) != GX_OK ||
        gx_json_read(&json, path, 1 << 16, &ignored) != GX_OK)
        return otherwise;
    gx_json_get_int(json, key, 0, &value, path, &ignored);
    gx_json_free(json);
    return value;
}

GxStatus gx_run_write(const char *output_dir, int64_t run, GxError *err)
{
    return gx__output_write_run(output_dir, run, -1, err);
}

int64_t gx_run_read(const char *output_dir) { return gx__output_read_run(output_dir, "run", 0); }

// ---- which folders there are ---------------------------------------------------------------------------------------

// N of "checkpoint-N" as gx_checkpoint_path writes it, or -1.
static int64_t gx__output_number(const char *name)
{
    const char *digits = name + strlen("checkpoint-");
    if (strncmp(name, "checkpoint-", strlen("checkpoint-")) || !*digits || strlen(digits) > 15 ||
        digits[strspn(digits, "0123456789")] || (digits[0] == '0' && digits[1]))
        return -1;
    return strtoll(digits, NULL, 10);
}

int64_t gx_checkpoint_number(const char *path)
{
    char name[GX_PATH];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    snprintf(name, sizeof name, "%.*s", (int)n, path);
    const char *slash = strrchr(name, '/');
    return gx__output_number(slash ? slash + 1 : name);
}

// The checkpoint with the largest number below `below`; its number, or -1.
static int64_t gx__output_before(const GxFolder *list, int64_t below)
{
    int64_t best = -1;
    for (int i = 0; i < list->n; i++) {
        int64_t n = list->entry[i].is_folder ? gx__output_number(list->entry[i].name) : -1;
        if (n < below && n > best) best = n;
    }
    return best;
}

GxStatus gx_checkpoint_path(char path[GX_PATH], const char *output_dir, int64_t number, GxError *err)
{
    char name[40];
    snprintf(name, sizeof name, "checkpoint-%ld", (long)number);
    return gx_path_join(path, output_dir, name, err);
}

// The number of the checkpoint that "checkpoint-N.gx-old" or the like was to be, or -1.
static int64_t gx__output_leftover_number(const char *name)
{
    static const char *const suffixes[] = {GX_NEW_SUFFIX, GX_OLD_SUFFIX};
    char stem[GX_FILE_NAME];
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(name), suffix = strlen(suffixes[i]);
        if (n <= suffix || strcmp(name + n - suffix, suffixes[i])) continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(n - suffix), name);
        return gx__output_number(stem);
    }
    return -1;
}

// Finishes or removes what killed runs left half done.
static GxStatus gx__output_sweep(const char *output_dir, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH];
        const int64_t n = gx__output_leftover_number(list.entry[i].name);
        if (n < 0) continue;
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx_publish_recover(path, err);
    }
    gx_folder_close(&list);
    return status;
}

static int gx__output_is_of(const char *folder, int64_t run)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO; // a state that cannot be read is of no run
    GxTrainState s = GX_ZERO;
    if (run == 0) return 1;
    return gx_path_join(path, folder, "trainer_state.json", &ignored) == GX_OK &&
           gx_train_state_read(path, &s, &ignored) == GX_OK && s.run == run;
}

// ---- whose the folder is -------------------------------------------------------------------------------------------

static const char *const gx__output_names[] = {"run.json", "training_args.json", "log.jsonl", "loss.svg"};
enum { GX__OUTPUT_NAMES = sizeof gx__output_names / sizeof *gx__output_names };

// A name in the folder that a run would write to: the newest checkpoint, else a file. "": there is none.
static GxStatus gx__output_find_used(const char *output_dir, char name[GX_FILE_NAME], GxError *err)
{
    GxFolder list;
    name[0] = 0;
    if (!gx_path_is_folder(output_dir)) return GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    const int64_t newest = gx__output_before(&list, INT64_MAX);
    if (newest >= 0) snprintf(name, GX_FILE_NAME, "checkpoint-%ld", (long)newest);
    for (int k = 0; k < GX__OUTPUT_NAMES && !name[0]; k++)
        for (int i = 0; i < list.n && !name[0]; i++)
            if (!strcmp(list.entry[i].name, gx__output_names[k]))
                snprintf(name, GX_FILE_NAME, "%s", gx__output_names[k]);
    gx_folder_close(&list);
    return GX_OK;
}

// "out-2", or the next that is not there.
static void gx__output_propose(const char *output_dir, char *text, size_t size)
{
    int n = (int)strlen(output_dir);
    while (n > 1 && output_dir[n - 1] == '/') n--;
    for (int k = 2; k < 10000; k++) {
        snprintf(text, size, "%.*s-%d", n, output_dir, k);
        if (access(text, F_OK) != 0) return;
    }
}

GxStatus gx_output_refuse_used(const char *output_dir, int64_t run, int is_home, GxError *err)
{
    char name[GX_FILE_NAME], other[GX_PATH + 8];
    const int64_t found = gx_run_read(output_dir);
    GX_TRY(gx__output_find_used(output_dir, name, err));
    if (!name[0] || (run && (found == run || (!found && is_home)))) return GX_OK;
    gx__output_propose(output_dir, other, sizeof other);
    if (!found)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s holds %s, and a run would write to that name; choose another folder (--output_dir %s), or "
                       "replace it (--overwrite_output_dir)",
                       output_dir, name, other);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s holds a run already (%s)%s; go on with it (--resume auto), choose another folder (--output_dir "
                   "%s), or replace it (--overwrite_output_dir)",
                   output_dir, name, run ? ", which is not the one that is resumed" : "", other);
}

int gx_output_holds(const char *output_dir, const char *path)
{
    char *folder = realpath(output_dir, NULL), *inner = realpath(path, NULL);
    const size_t n = folder ? strlen(folder) : 0;
    const int holds = folder && inner && !strncmp(folder, inner, n) && (inner[n] == '/' || inner[n] == 0);
    free(folder);
    free(inner);
    return holds;
}

// Only what a run wrote: checkpoints have manifests. run.json goes last: killed on its way, the folder is still a
// run's.
GxStatus gx_output_clear(const char *output_dir, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    char path[GX_PATH];
    const int is_run = gx_run_read(output_dir) != 0;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        const GxFolderEntry *e = &list.entry[i];
        status = gx_path_join(path, output_dir, e->name, err);
        if (status == GX_OK && gx__output_number(e->name) >= 0 && e->is_folder && gx_folder_is_ours(path))
            status = gx_publish_remove(path, err);
        if (status == GX_OK && is_run && e->is_folder && !strcmp(e->name, GX_ABANDONED))
            status = gx_folder_remove(path, err);
    }
    gx_folder_close(&list);
    for (int k = GX__OUTPUT_NAMES - 1; k >= 0 && status == GX_OK; k--) {
        status = gx_path_join(path, output_dir, gx__output_names[k], err);
        if (status == GX_OK && unlink(path) != 0 && errno != ENOENT)
            status = GX_FAIL(err, GX_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    return status;
}

// ---- ways that a run has left
// ----------------------------------------------------------------------------------------

// 1: a folder with a manifest, of which nothing can be said: its contents do not hold.
static int gx__output_is_damaged(const char *path)
{
    GxError torn = GX_ZERO;
    return gx_folder_is_ours(path) && gx_folder_verify(path, 1, &torn) != GX_OK;
}

static GxStatus gx__output_refuse_other(const char *path, int64_t run, int64_t step, GxError *err)
{
    if (!gx_folder_is_ours(path))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is where step %ld may have to be saved, but it is no folder with a %s: it was not written "
                       "by this program, or not to the end; move it away or remove it, or choose another --output_dir",
                       path, (long)step, GX_MANIFEST);
    if (gx__output_is_of(path, run) || gx__output_is_damaged(path)) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s is a checkpoint of another run, in whose place this one may have to save step %ld; choose "
                   "another --output_dir, or move that checkpoint away or remove it",
                   path, (long)step);
}

GxStatus gx_output_refuse_in_the_way(const char *output_dir, int64_t run, int64_t begun, int64_t last, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH];
        const int64_t n = gx__output_number(list.entry[i].name);
        if (n <= begun || n > last) continue;
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx__output_refuse_other(path, run, n, err);
    }
    gx_folder_close(&list);
    return status;
}

// abandoned/checkpoint-20, or checkpoint-20-2 where that is taken.
static GxStatus gx__output_set_apart(const char *output_dir, int64_t n, GxError *err)
{
    char path[GX_PATH], folder[GX_PATH], apart[GX_PATH], name[60];
    GX_TRY(gx_checkpoint_path(path, output_dir, n, err));
    GX_TRY(gx_path_join(folder, output_dir, GX_ABANDONED, err));
    GX_TRY(gx_folder_make(folder, err));
    for (int k = 1;; k++) {
        snprintf(name, sizeof name, k == 1 ? "checkpoint-%ld" : "checkpoint-%ld-%d", (long)n, k);
        GX_TRY(gx_path_join(apart, folder, name, err));
        if (access(apart, F_OK) != 0) break;
    }
    GX_TRY(gx_folder_move(path, apart, err));
    return gx_file_sync(output_dir, err);
}

// How many checkpoints behind `step` are this run's or damaged; moves: they are set apart.
static GxStatus gx__output_behind(const char *output_dir, int64_t run, int64_t step, int moves, int *count,
                                  GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    *count = 0;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH], manifest[GX_PATH];
        const int64_t n = list.entry[i].is_folder ? gx__output_number(list.entry[i].name) : -1;
        if (n <= step) continue;
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx_path_join(manifest, path, GX_MANIFEST, err);
        if (status != GX_OK || !gx_path_is_file(manifest)) continue;
        if (!gx__output_is_of(path, run) && !gx__output_is_damaged(path)) continue;
        ++*count;
        if (moves) status = gx__output_set_apart(output_dir, n, err);
    }
    gx_folder_close(&list);
    return status;
}

static GxStatus gx__output_move_behind(const char *output_dir, int64_t run, int64_t step, int *moved, GxError *err)
{
    GX_TRY(gx__output_behind(output_dir, run, step, 1, moved, err));
    return gx_run_write(output_dir, run, err);
}

GxStatus gx_output_return(const char *output_dir, int64_t run, int64_t step, int *moved, GxError *err)
{
    GX_TRY(gx__output_behind(output_dir, run, step, 0, moved, err));
    if (*moved == 0) return GX_OK;
    GX_TRY(gx__output_write_run(output_dir, run, step, err)); // from here on the older way is left
    return gx__output_move_behind(output_dir, run, step, moved, err);
}

// ---- the lock ------------------------------------------------------------------------------------------------------

GxStatus gx_output_lock(int *lock, const char *output_dir, GxError *err)
{
    if (*lock >= 0) return GX_OK;
    *lock = open(output_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return GX_FAIL(err, GX_ERR_IO, "cannot open the folder %s: %s", output_dir, strerror(errno));
    if (flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "another run is writing to %s; wait for it, or choose another --output_dir", output_dir);
    GX_TRY(gx__output_sweep(output_dir, err));
    const int64_t returns_to = gx__output_read_run(output_dir, "returns_to", -1);
    int moved;
    if (returns_to < 0) return GX_OK;
    return gx__output_move_behind(output_dir, gx_run_read(output_dir), returns_to, &moved, err);
}

// ---- the newest, and the oldest
// --------------------------------------------------------------------------------------

GxStatus gx_checkpoint_newest(const char *output_dir, int64_t run, char newest[GX_PATH], const GxLogger *log,
                              GxError *err)
{
    GxFolder list;
    newest[0] = 0;
    if (!gx_path_is_folder(output_dir)) return GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    GxStatus status = GX_OK;
    for (int64_t n = gx__output_before(&list, INT64_MAX); n >= 0 && status == GX_OK; n = gx__output_before(&list, n)) {
        GxError torn = GX_ZERO;
        status = gx_checkpoint_path(newest, output_dir, n, err);
        if (status != GX_OK) break;
        const int whole = gx_folder_verify(newest, 1, &torn) == GX_OK;
        if (whole && gx__output_is_of(newest, run)) break;
        if (whole)
            gx_log(log, GX_LOG_WARNING, "%s is of another run than the one that was begun last in %s, passing it over",
                   newest, output_dir);
        else gx_log(log, GX_LOG_WARNING, "%s is not whole, passing it over: %s", newest, torn.message);
        newest[0] = 0;
    }
    gx_folder_close(&list);
    return status;
}

GxStatus gx_checkpoint_prune(const char *output_dir, int64_t run, int64_t newest, int64_t keep, GxError *err)
{
    GxFolder list;
    if (keep <= 0) return GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    GxStatus status = GX_OK;
    int64_t kept = 0;
    for (int64_t n = gx__output_before(&list, newest + 1); n >= 0 && status == GX_OK; n = gx__output_before(&list, n)) {
        char path[GX_PATH], manifest[GX_PATH];
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx_path_join(manifest, path, GX_MANIFEST, err);
        if (status != GX_OK || !gx_path_is_file(manifest) || !gx__output_is_of(path, run)) continue;
        if (++kept > keep) status = gx_publish_remove(path, err);
    }
    gx_folder_close(&list);
    return status;
}

// ---- room ----------------------------------------------------------------------------------------------------------

GxStatus gx_output_compare_room(const char *output_dir, int64_t left, int64_t bytes, int64_t count, const GxLogger *log,
                                GxError *err)
{
    const double mb = (double)bytes / 1e6, left_mb = (double)left / 1e6;
    if (left < bytes)
        return GX_FAIL(err, GX_ERR_IO,
                       "a checkpoint takes %.1f MB, and the disk of %s has %.1f MB left; make room, or choose another "
                       "--output_dir",
                       mb, output_dir, left_mb);
    if ((double)left < (double)count * (double)bytes)
        gx_log(log, GX_LOG_WARNING,
               "%ld checkpoints of %.1f MB will be in %s at once, and its disk has %.1f MB left; --save_total_limit "
               "says how many are kept",
               (long)count, mb, output_dir, left_mb);
    return GX_OK;
}

GxStatus gx_output_check_room(const char *output_dir, int64_t bytes, int64_t count, const GxLogger *log, GxError *err)
{
    struct statvfs disk;
    if (statvfs(output_dir, &disk) != 0) return GX_OK; // a file system that does not say
    return gx_output_compare_room(output_dir, (int64_t)disk.f_bavail * (int64_t)disk.f_frsize, bytes, count, log, err);
}
#endif
