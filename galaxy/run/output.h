// output.h: a run's output folder: which run it is, which of its checkpoints is the newest, what may be replaced or
// removed, and that no other run writes there meanwhile.
//
//     out/  run.json  checkpoint-400/  checkpoint-500/  training_args.json  log.jsonl  loss.svg
//
// A folder may hold checkpoints of several runs, one begun after the other. run.json says which run was begun last:
// `--resume auto` means that one. A torn checkpoint is recognised, and passed over in favour of the newest whole one.
// All of this is rank 0's.
#ifndef GX_OUTPUT_H
#define GX_OUTPUT_H
#include "../base/log.h"
#include "../io/folder.h"
GX_BEGIN

int64_t gx_run_draw(void); // a number that no other run has; never 0
GxStatus gx_run_write(const char *output_dir, int64_t run, GxError *err);
int64_t gx_run_read(const char *output_dir); // 0: there is none

// output_dir/checkpoint-<step>
GxStatus gx_checkpoint_path(char path[GX_PATH], const char *output_dir, int64_t step, GxError *err);

// Two runs in one folder would mix their logs and remove each other's unfinished checkpoints. The lock is on the folder
// itself and ends with the process; a file system without locks has none. *lock: its file descriptor; -1 before. Only
// who has it may tidy up, and does (gx_checkpoint_sweep).
GxStatus gx_output_lock(int *lock, const char *output_dir, GxError *err);

// Before a run looks for checkpoints or writes one, and while no other writes here: finishes or removes what killed
// runs left half done.
GxStatus gx_checkpoint_sweep(const char *output_dir, GxError *err);
// A run that begins with step `begun` may save at any step up to `last` (a signal can ask for it): refuses what is in
// the way, be it another run's checkpoint or not ours at all. Checkpoints of this run, from steps that it does again,
// may be replaced.
GxStatus gx_checkpoint_refuse_others(const char *output_dir, int64_t run, int64_t begun, int64_t last, GxError *err);

// The newest checkpoint-N of this run in output_dir whose manifest holds; "" if there is none. Torn ones are passed
// over, with a warning, and so are those of other runs. run 0: of any.
GxStatus gx_checkpoint_newest(const char *output_dir, int64_t run, char newest[GX_PATH], const GxLogger *log,
                              GxError *err);
// Of this run's checkpoints up to `newest`, which was just saved, all but the last `keep` are removed. What is not ours
// (no manifest), of another run, or has a larger number (the run went on from an older checkpoint) is left alone.
GxStatus gx_checkpoint_prune(const char *output_dir, int64_t run, int64_t newest, int64_t keep, GxError *err);

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
#include <time.h>
#include <unistd.h>
#include "../io/json.h"
#include "checkpoint.h"

// ---- the lock ------------------------------------------------------------------------------------------------------

GxStatus gx_output_lock(int *lock, const char *output_dir, GxError *err)
{
    if (*lock >= 0) return GX_OK;
    *lock = open(output_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return GX_FAIL(err, GX_ERR_IO, "cannot open the folder %s: %s", output_dir, strerror(errno));
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return gx_checkpoint_sweep(output_dir, err);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "another run is writing to %s; wait for it, or choose another --output_dir",
                   output_dir);
}

// ---- which run it is -----------------------------------------------------------------------------------------------

int64_t gx_run_draw(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t words[3] = {t.tv_sec, t.tv_nsec, getpid()};
    return (int64_t)(gx_hash(GX_HASH_START, words, sizeof words) >> 1) | 1;
}

GxStatus gx_run_write(const char *output_dir, int64_t run, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, output_dir, "run.json", err));
    GxJson *json = gx_json_new_object();
    gx_json_set(json, "run", gx_json_new_int(run), err);
    GxStatus status = gx_error_code(err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

int64_t gx_run_read(const char *output_dir)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO; // unreadable: as if it were not there
    GxJson *json = NULL;
    int64_t run = 0;
    if (gx_path_join(path, output_dir, "run.json", &ignored) != GX_OK ||
        gx_json_read(&json, path, 1 << 16, &ignored) != GX_OK)
        return 0;
    gx_json_get_int(json, "run", 0, &run, path, &ignored);
    gx_json_free(json);
    return run;
}

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

GxStatus gx_checkpoint_sweep(const char *output_dir, GxError *err)
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

static GxStatus gx__output_refuse_other(const char *path, int64_t run, int64_t step, GxError *err)
{
    char manifest[GX_PATH];
    GX_TRY(gx_path_join(manifest, path, GX_MANIFEST, err));
    if (!gx_folder_is_ours(path))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s is where step %ld may have to be saved, but it is no folder with a %s: it was not written "
                       "by this program, or not to the end; move it away or remove it, or choose another --output_dir",
                       path, (long)step, GX_MANIFEST);
    if (!gx_path_is_file(manifest) || gx__output_is_of(path, run)) return GX_OK;
    return GX_FAIL(
        err, GX_ERR_ARGUMENT,
        "%s is a checkpoint of another run, in whose place this one may have to save step %ld; go on with the earlier "
        "run (--resume auto), choose another --output_dir, or move that checkpoint away or remove it",
        path, (long)step);
}

GxStatus gx_checkpoint_refuse_others(const char *output_dir, int64_t run, int64_t begun, int64_t last, GxError *err)
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
#endif
