// output.h: a run's output folder: which run it belongs to, which checkpoint is the newest, what may be replaced or
// removed, and a lock against other runs.
//
//     out/  run.json  training_args.json  log.jsonl  loss.svg  checkpoint-400/  checkpoint-500/
//           abandoned/  log.jsonl  checkpoint-450/      side_cache/  rank-0.rows      runs/ (event_file.h)
//
// A folder holds one run. A new run needs a folder without files of these names, or --overwrite_output_dir. run.json
// identifies the run; `--resume auto` continues from its newest complete checkpoint and skips damaged ones. If a run is
// resumed from an older checkpoint, the later checkpoints and the later lines of the log are moved to abandoned/, from
// which nothing is ever removed. Only rank 0 calls these functions.
#ifndef GX_OUTPUT_H
#define GX_OUTPUT_H
#include "../base/fields.h"
#include "../base/log.h"
#include "../io/folder.h"
GX_BEGIN

#define GX_ABANDONED         "abandoned"
#define GX_SIDE_CACHE_FOLDER "side_cache"

// What run.json says of the run in a folder.
typedef struct {
    int64_t run;        // a number that no other run has; 0: none
    int64_t world;      // number of ranks when it was last started or resumed
    int64_t returns_to; // the step after which checkpoints are being moved to abandoned/; -1: no move is under way
    char from[GX_PATH]; // the checkpoint in another folder that it was resumed from; "": none
    // The best validation so far, if the run compares them (best.h); best_step 0: none
    double best_metric;
    int64_t best_step;
    char best_checkpoint[GX_FIELD_TEXT]; // "checkpoint-400"; "": its weights were not saved
} GxRunInfo;

int64_t gx_run_new_number(void); // a number for a new run
GxStatus gx_run_write(const char *output_dir, const GxRunInfo *r, GxError *err);
GxRunInfo gx_run_read(const char *output_dir); // an unreadable file counts as missing
// The same; if it cannot be read or does not exist, `why` says so.
GxRunInfo gx_run_read_or_why(const char *output_dir, GxError *why);

// If output_dir has no run: finds one that may have been meant, whose folder contains output_dir, is in it, or is
// beside it and has nearly the same name. 0: none.
int gx_run_find_near(const char *output_dir, char found[GX_PATH]);

// output_dir/checkpoint-<step>; gx_checkpoint_number returns the step of such a path, -1 for other names.
GxStatus gx_checkpoint_path(char path[GX_PATH], const char *output_dir, int64_t step, GxError *err);
int64_t gx_checkpoint_number(const char *path);

// Locks the folder, since two runs in it would mix their logs and remove each other's unfinished checkpoints. The lock
// is on the folder itself and ends with the process; on a file system without locks there is none. *lock: its file
// descriptor, -1 before. Whoever gets the lock also finishes or removes what killed runs left incomplete.
GxStatus gx_output_lock(int *lock, const char *output_dir, GxError *err);

// Refuses a folder that is in use, by another run or by any file that the run would write, and one inside a checkpoint.
// run 0: a new run. is_home: the run is resumed from a checkpoint in this folder, or from the one that its run.json
// names; a continuation of the same run from elsewhere counts as another run.
GxStatus gx_output_refuse_used(const char *output_dir, int64_t run, int is_home, GxError *err);
// 1: the path is the folder or lies in it. Neither has to exist.
int gx_output_contains(const char *output_dir, const char *path);
// Refuses a path inside a checkpoint. option: the one that has the path, "--output_dir".
GxStatus gx_output_refuse_nested(const char *option, const char *path, GxError *err);
// Refuses a path to which no file can be written: its folder does not exist (unless it is output_dir, which will be
// made) or takes no file, or there is something else than a file that begins with `begin`, which may be replaced. what:
// "a trace".
GxStatus gx_output_check_replaceable(const char *option, const char *path, const char *output_dir, const char *begin,
                                     const char *what, GxError *err);
int gx_output_is_side_cache(const char *name); // 1: a file of one rank, side_cache/rank-0.rows
// Removes the run in the folder: checkpoints, log, abandoned/, side cache and event files. Other files stay. An error
// if there is no run.
GxStatus gx_output_clear(const char *output_dir, GxError *err);

// A run resumed at step `begun` may save at any later step (a signal can ask for it) up to `last`: refuses folders with
// the names of these checkpoints that are not this run's. This run's own checkpoints, and damaged ones, do not count,
// since they can be set apart.
GxStatus gx_output_refuse_conflicts(const char *output_dir, int64_t run, int64_t begun, int64_t last, GxError *err);
// Moves this run's checkpoints after `step`, and damaged ones, to abandoned/ and writes run.json; *moved: how many. If
// the process is killed meanwhile, the next gx_output_lock completes the move.
GxStatus gx_output_rewind(const char *output_dir, const GxRunInfo *r, int64_t step, int *moved, GxError *err);

// The newest checkpoint-N of this run in output_dir whose files match its manifest; "": none. Damaged checkpoints and
// those of other runs are skipped, with a warning. run 0: of any run.
GxStatus gx_checkpoint_newest(const char *output_dir, int64_t run, char newest[GX_PATH], const GxLogger *log,
                              GxError *err);
// Removes this run's checkpoints up to `newest`, which was just saved, except for the last `keep` of them, `newest`
// included, and that of step `best`. keep 0: removes none. Folders without a manifest and checkpoints of other runs are
// left alone.
GxStatus gx_checkpoint_prune(const char *output_dir, int64_t run, int64_t newest, int64_t keep, int64_t best,
                             GxError *err);

// Checks that the disk has room for `count` checkpoints of `bytes` each (one more than are kept exists for a moment).
// An error if not even one fits, a warning if not all do.
GxStatus gx_output_check_space(const char *output_dir, int64_t bytes, int64_t count, const GxLogger *log, GxError *err);
// The same, given how many bytes the disk has left.
GxStatus gx_output_compare_space(const char *output_dir, int64_t left, int64_t bytes, int64_t count,
                                 const GxLogger *log, GxError *err);

// Checks --model: refuses a run's output folder, naming its newest checkpoint, and a folder that does not match its
// manifest.
GxStatus gx_output_check_model(const char *folder, GxError *err);
// Checks --adapter: refuses a run's output folder, naming its newest checkpoint.
GxStatus gx_output_check_adapter(const char *folder, GxError *err);
// Refuses a folder that does not exist; if its name may be one on the Hugging Face hub, the error has the command that
// downloads it. option: the one that the downloaded folder is then given to, "model".
GxStatus gx_output_check_exists(const char *folder, const char *option, GxError *err);
// Checks a folder that no run writes to: refuses one inside a checkpoint, and a checkpoint's name in a run's folder.
GxStatus gx_output_check_place(const char *folder, GxError *err);

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
#include "../io/event_file.h"
#include "../io/json_fields.h"
#include "../io/typing.h"
#include "../text/sentence_modules.h"
#include "checkpoint.h"

// ---- which run it is -----------------------------------------------------------------------------------------------

int64_t gx_run_new_number(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t words[3] = {t.tv_sec, t.tv_nsec, getpid()};
    return (int64_t)(gx_hash(GX_HASH_START, words, sizeof words) >> 1) | 1;
}

#define GX__OUTPUT_AT(field) offsetof(GxRunInfo, field)
static const GxField gx__output_run[] = {
    {"run", GX_FIELD_INT, GX__OUTPUT_AT(run), NULL, "which run it is", "1.."},
    {"world_size", GX_FIELD_INT, GX__OUTPUT_AT(world), NULL, "ranks", "1..256"},
    {"returns_to", GX_FIELD_INT, GX__OUTPUT_AT(returns_to), NULL, "what is behind this step is being set apart",
     "-1.."},
    {"from", GX_FIELD_PATH, GX__OUTPUT_AT(from), NULL, "checkpoint in another folder that it went on from", NULL},
    // of the best validation, if there is one: the next three
    {"best_metric", GX_FIELD_DOUBLE, GX__OUTPUT_AT(best_metric), NULL, "of the best validation so far", NULL},
    {"best_global_step", GX_FIELD_INT, GX__OUTPUT_AT(best_step), NULL, "when it was", "0.."},
    {"best_model_checkpoint", GX_FIELD_STRING, GX__OUTPUT_AT(best_checkpoint), NULL, "its weights", NULL},
};

GxStatus gx_run_write(const char *output_dir, const GxRunInfo *r, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, output_dir, "run.json", err));
    GxJson *json = gx_json_new_object();
    const int fields = (int)(sizeof gx__output_run / sizeof *gx__output_run);
    GxStatus status = gx_json_set_fields(json, gx__output_run, fields - (r->best_step ? 0 : 3), r, err);
    if (status == GX_OK) status = gx_json_write(json, path, err);
    gx_json_free(json);
    return status;
}

// Refuses members of a newer version: like returns_to, they may say what has to be done first.
static GxStatus gx__output_check_run(const GxJson *json, const char *path, GxError *why)
{
    char cut[GX_TEXT_VALUE];
    for (GxJsonMember m = GX_ZERO; gx_json_next(json, &m);)
        if (!gx_field_find(GX_FIELDS(gx__output_run), m.key))
            return GX_FAIL(why, GX_ERR_UNSUPPORTED, "%s has \"%s\", which this version does not know", path,
                           gx_text_cut(m.key, cut, sizeof cut));
    return GX_OK;
}

GxRunInfo gx_run_read_or_why(const char *output_dir, GxError *why)
{
    char path[GX_PATH];
    GxJson *json = NULL;
    GxRunInfo r = GX_ZERO, none = GX_ZERO;
    r.world = none.world = 1, r.returns_to = none.returns_to = -1;
    GxStatus status = gx_path_join(path, output_dir, "run.json", why);
    if (status == GX_OK) status = gx_json_read(&json, path, 1 << 16, why);
    if (status == GX_OK) status = gx_json_get_fields(json, GX_FIELDS(gx__output_run), 0, &r, path, why);
    if (status == GX_OK) status = gx__output_check_run(json, path, why);
    if (status == GX_OK && !r.run) status = GX_FAIL(why, GX_ERR_FORMAT, "%s: it has no run number", path);
    gx_json_free(json);
    return status == GX_OK ? r : none;
}

GxRunInfo gx_run_read(const char *output_dir)
{
    GxError ignored = GX_ZERO;
    return gx_run_read_or_why(output_dir, &ignored);
}

// Finds the folder in `parent` that has a run and whose name is nearest to `name` (NULL: any name). 0: there is none.
static int gx__output_find_run(const char *parent, const char *name, char found[GX_PATH])
{
    char path[GX_PATH];
    GxFolder folder;
    GxError ignored = GX_ZERO;
    int least = -1;
    if (!gx_path_is_folder(parent) || gx_folder_list(&folder, parent, &ignored) != GX_OK) return 0;
    for (int i = 0; i < folder.n; i++) {
        const int distance = !folder.entry[i].is_folder ? -1
                             : name                     ? gx_typing_distance(name, folder.entry[i].name)
                                                        : 1;
        if (distance <= 0 || (least >= 0 && distance >= least)) continue;
        if (gx_path_join(path, parent, folder.entry[i].name, &ignored) != GX_OK || !gx_run_read(path).run) continue;
        least = distance;
        snprintf(found, GX_PATH, "%s", path);
    }
    gx_folder_close(&folder);
    return least >= 0;
}

int gx_run_find_near(const char *output_dir, char found[GX_PATH])
{
    char parent[GX_PATH], name[GX_PATH];
    snprintf(name, sizeof name, "%.*s", gx_path_length(output_dir), output_dir);
    gx_path_parent(parent, name);
    if (strchr(name, '/') && gx_run_read(parent).run) return snprintf(found, GX_PATH, "%s", parent), 1;
    if (gx__output_find_run(name, NULL, found)) return 1;
    if (!gx__output_find_run(parent, gx_path_name(name), found)) return 0;
    if (!strcmp(parent, ".") && !strchr(name, '/')) memmove(found, found + 2, strlen(found + 2) + 1); // without ./
    return 1;
}

// ---- which folders there are ---------------------------------------------------------------------------------------

// N of "checkpoint-N" as gx_checkpoint_path writes it, or -1.
static int64_t gx__output_parse_number(const char *name)
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
    snprintf(name, sizeof name, "%.*s", gx_path_length(path), path);
    const char *slash = strrchr(name, '/');
    return gx__output_parse_number(slash ? slash + 1 : name);
}

// The checkpoint with the largest number below `below`; its number, or -1.
static int64_t gx__output_newest_before(const GxFolder *list, int64_t below)
{
    int64_t best = -1;
    for (int i = 0; i < list->n; i++) {
        int64_t n = list->entry[i].is_folder ? gx__output_parse_number(list->entry[i].name) : -1;
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

// The step of "checkpoint-N.gx-old" and other temporary names of a checkpoint, or -1.
static int64_t gx__output_parse_temporary(const char *name)
{
    static const char *const suffixes[] = {GX_NEW_SUFFIX, GX_OLD_SUFFIX};
    char stem[GX_FILE_NAME];
    for (int i = 0; i < 2; i++) {
        const int64_t n = gx_text_stem(name, suffixes[i]);
        if (n <= 0) continue;
        snprintf(stem, sizeof stem, "%.*s", (int)n, name);
        return gx__output_parse_number(stem);
    }
    return -1;
}

static const char *const gx__output_names[] = {"run.json", "training_args.json", "log.jsonl", "loss.svg",
                                               "confusion.svg"};
enum { GX__OUTPUT_NAMES = sizeof gx__output_names / sizeof *gx__output_names };

// 1: "log.jsonl.tmp-1234-0": a temporary file that was never completed (io/files.h).
static int gx__output_is_temporary_file(const char *name)
{
    for (int k = 0; k < GX__OUTPUT_NAMES; k++) {
        const size_t n = strlen(gx__output_names[k]);
        if (!strncmp(name, gx__output_names[k], n) && !strncmp(name + n, ".tmp-", 5)) return 1;
    }
    return 0;
}

// Finishes or removes what killed runs left incomplete.
static GxStatus gx__output_clean_up(const char *output_dir, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH];
        const int64_t n = gx__output_parse_temporary(list.entry[i].name);
        if (list.entry[i].is_file && gx__output_is_temporary_file(list.entry[i].name)) {
            status = gx_path_join(path, output_dir, list.entry[i].name, err);
            if (status == GX_OK) unlink(path); // if it stays, it only takes disk space
        }
        if (n < 0 || status != GX_OK) continue;
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx_publish_recover(path, err);
    }
    gx_folder_close(&list);
    return status;
}

// 1: a checkpoint of this program, complete or not: it has a manifest, and a state or a manifest that names one.
static int gx__output_is_checkpoint(const char *path)
{
    static const char state[] = "trainer_state.json";
    char file[GX_PATH];
    GxError too_long = GX_ZERO;
    return gx_path_join(file, path, GX_MANIFEST, &too_long) == GX_OK && gx_path_is_file(file) &&
           gx_path_join(file, path, state, &too_long) == GX_OK &&
           (gx_path_is_file(file) || gx_folder_names(path, state));
}

// 1: its state says that the checkpoint is of this run; run 0: of any.
static int gx__output_belongs_to(const char *folder, int64_t run)
{
    char path[GX_PATH];
    GxError ignored = GX_ZERO; // an unreadable state belongs to no run
    GxTrainState s = GX_ZERO;
    if (run == 0) return 1;
    return gx_path_join(path, folder, "trainer_state.json", &ignored) == GX_OK &&
           gx_train_state_read(path, &s, &ignored) == GX_OK && s.run == run;
}

// ---- whether the folder is in use -----------------------------------------------------------------------------------

// The first name in the folder that a run would write to: one of its files, otherwise the newest checkpoint. "": none.
static GxStatus gx__output_find_used(const char *output_dir, char name[GX_FILE_NAME], GxError *err)
{
    GxFolder list;
    name[0] = 0;
    if (!gx_path_is_folder(output_dir)) return GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int k = 0; k < GX__OUTPUT_NAMES && !name[0]; k++)
        for (int i = 0; i < list.n && !name[0]; i++)
            if (!strcmp(list.entry[i].name, gx__output_names[k]))
                snprintf(name, GX_FILE_NAME, "%s", gx__output_names[k]);
    const int64_t newest = gx__output_newest_before(&list, INT64_MAX);
    if (newest >= 0 && !name[0]) snprintf(name, GX_FILE_NAME, "checkpoint-%ld", (long)newest);
    gx_folder_close(&list);
    return GX_OK;
}

// Proposes "out-2", or the next name that is free.
static void gx__output_suggest(const char *output_dir, char *text, size_t size)
{
    char given[GX_PATH], *real = realpath(output_dir, NULL);
    snprintf(given, sizeof given, "%.*s", gx_path_length(output_dir), output_dir);
    const char *last = strrchr(given, '/'), *name = last ? last + 1 : given;
    const char *folder = real && (!strcmp(name, ".") || !strcmp(name, "..")) ? real : given;
    for (int k = 2; k < 10000; k++) {
        snprintf(text, size, "%s-%d", folder, k);
        if (access(text, F_OK) != 0) break;
    }
    free(real);
}

// The absolute path, with links resolved in the part that exists. "": it is too long.
static void gx__output_resolve(char out[GX_PATH], const char *path)
{
    char exists[GX_PATH], *slash, *real;
    const int n = gx_path_length(path);
    snprintf(exists, sizeof exists, "%.*s", n, path);
    while (!(real = realpath(exists, NULL)) && (slash = strrchr(exists, '/'))) *slash = 0;
    const int at = real ? (int)strlen(exists) : 0; // where the part that does not exist begins
    const int slashes = (int)strspn(path + at, "/");
    if (!real) real = realpath(path[0] == '/' ? "/" : ".", NULL);
    const int bytes = snprintf(out, GX_PATH, "%s%s%.*s", real ? real : "",
                               at + slashes < n && real && real[1] ? "/" : "", n - at - slashes, path + at + slashes);
    if (!real || n >= GX_PATH || bytes >= GX_PATH) out[0] = 0;
    free(real);
}

GxStatus gx_output_refuse_nested(const char *option, const char *path, GxError *err)
{
    char folder[GX_PATH], manifest[GX_PATH];
    GxError too_long = GX_ZERO;
    int is_itself = 1;
    for (gx__output_resolve(folder, path); folder[0]; *strrchr(folder, '/') = 0, is_itself = 0) {
        if (gx_path_join(manifest, folder, GX_MANIFEST, &too_long) != GX_OK || !gx_path_is_file(manifest)) continue;
        if (is_itself)
            return GX_FAIL(err, GX_ERR_ARGUMENT,
                           "%s %s already exists and is not empty: it has a %s, as checkpoints and models have; choose "
                           "another place",
                           option, path, GX_MANIFEST);
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "%s %s lies in %s, which has a %s: when that checkpoint is removed, all in it is; choose another place",
            option, path, folder, GX_MANIFEST);
    }
    return GX_OK;
}

// 1: the file is empty, or begins with this text.
static int gx__output_begins(const char *path, const char *begin, GxError *err)
{
    char found[64] = "";
    int64_t bytes = 0;
    int fd;
    const int64_t n = gx_min((int64_t)strlen(begin), (int64_t)sizeof found);
    if (gx_file_open(path, &fd, &bytes, err) != GX_OK) return 0;
    const int begins = bytes == 0 || (bytes >= n && gx_file_read_at(fd, path, found, n, 0, err) == GX_OK &&
                                      !memcmp(found, begin, (size_t)n));
    close(fd);
    return begins;
}

GxStatus gx_output_check_replaceable(const char *option, const char *path, const char *output_dir, const char *begin,
                                     const char *what, GxError *err)
{
    char folder[GX_PATH], parent[GX_PATH], output[GX_PATH];
    GxNewFile file = GX_ZERO;
    GX_TRY(gx_output_refuse_nested(option, path, err));
    GX_TRY(gx_file_check_output(path, err));
    if (gx_path_is_file(path) && !gx__output_begins(path, begin, err)) {
        GX_TRY(gx_error_code(err));
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s %s exists and is not %s, so it is left as it is; name another file",
                       option, path, what);
    }
    gx_path_parent(folder, path);
    gx__output_resolve(parent, folder), gx__output_resolve(output, output_dir);
    if (!gx_path_is_folder(folder) && !strcmp(parent, output)) return GX_OK;
    if (!gx_path_is_folder(folder))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "%s %s: the folder %s does not exist; make it first", option, path,
                       folder);
    GX_TRY(gx_file_create(&file, path, err));
    gx_file_abandon(&file);
    return GX_OK;
}

// Refuses a folder with files of a run, but without a run.json that says which run.
static GxStatus gx__output_refuse_nameless(const char *output_dir, const char *name, const GxError *why, GxError *err)
{
    char other[GX_PATH + 16], newest[GX_PATH];
    gx__output_suggest(output_dir, other, sizeof other);
    GX_TRY(gx_checkpoint_newest(output_dir, 0, newest, NULL, err));
    if (newest[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "%s holds %s and checkpoints (%s is the newest complete one), but no run.json that says which "
                       "run they belong to: %s; put it back, or continue from that checkpoint in another folder "
                       "(--resume %s --output_dir %s); if %s belongs to no run, move it away",
                       output_dir, name, newest, why->message, newest, other, name);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s holds %s, but no run that could be resumed, and a new run would overwrite that (%s); move it "
                   "away, or choose another folder (--output_dir %s)",
                   output_dir, name, why->message, other);
}

GxStatus gx_output_refuse_used(const char *output_dir, int64_t run, int is_home, GxError *err)
{
    char name[GX_FILE_NAME], other[GX_PATH + 16];
    GxError why = GX_ZERO;
    const int64_t found = gx_run_read_or_why(output_dir, &why).run;
    GX_TRY(gx_output_refuse_nested("--output_dir", output_dir, err));
    GX_TRY(gx__output_find_used(output_dir, name, err));
    if (!name[0] || (run && is_home && (found == run || gx__output_parse_number(name) >= 0))) return GX_OK;
    if (!found) return gx__output_refuse_nameless(output_dir, name, &why, err);
    gx__output_suggest(output_dir, other, sizeof other);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "%s already holds a run%s; continue it (--resume auto --output_dir %s), choose another folder "
                   "(--output_dir %s), or replace it (--overwrite_output_dir)",
                   output_dir,
                   !run           ? ""
                   : found == run ? ", a different course of the one that is resumed"
                                  : ", which is not the one that is resumed",
                   output_dir, other);
}

int gx_output_contains(const char *output_dir, const char *path)
{
    char folder[GX_PATH], inner[GX_PATH];
    gx__output_resolve(folder, output_dir);
    gx__output_resolve(inner, path);
    const size_t n = strlen(folder);
    return n && !strncmp(folder, inner, n) && (inner[n] == '/' || inner[n] == 0);
}

// prefix: the beginning of the names of the checkpoints to remove.
static GxStatus gx__output_remove_checkpoints(const char *folder, const char *prefix, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    GX_TRY(gx_folder_list(&list, folder, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH];
        const GxFolderEntry *e = &list.entry[i];
        if (!e->is_folder || strncmp(e->name, prefix, strlen(prefix))) continue;
        status = gx_path_join(path, folder, e->name, err);
        if (status == GX_OK && gx__output_is_checkpoint(path)) status = gx_publish_remove(path, err);
    }
    gx_folder_close(&list);
    return status;
}

static GxStatus gx__output_unlink(const char *folder, const char *name, GxError *err)
{
    char path[GX_PATH];
    GX_TRY(gx_path_join(path, folder, name, err));
    if (unlink(path) == 0 || errno == ENOENT) return GX_OK;
    return GX_FAIL(err, GX_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
}

int gx_output_is_side_cache(const char *name)
{
    const char *end = strrchr(name, '.');
    return !strncmp(name, "rank-", 5) && end && !strcmp(end, ".rows");
}

static GxStatus gx__output_remove_side_cache(const char *output_dir, GxError *err)
{
    char path[GX_PATH];
    GxFolder list;
    GX_TRY(gx_path_join(path, output_dir, GX_SIDE_CACHE_FOLDER, err));
    if (!gx_path_is_folder(path)) return GX_OK;
    GX_TRY(gx_folder_list(&list, path, err));
    GxStatus status = GX_OK;
    for (int i = 0; i < list.n && status == GX_OK; i++)
        if (list.entry[i].is_file && gx_output_is_side_cache(list.entry[i].name))
            status = gx__output_unlink(path, list.entry[i].name, err);
    gx_folder_close(&list);
    rmdir(path); // stays if something else is in it
    return status;
}

// run.json is removed last: if the process is killed, the folder still counts as a run's.
GxStatus gx_output_clear(const char *output_dir, GxError *err)
{
    char name[GX_FILE_NAME], abandoned[GX_PATH], runs[GX_PATH];
    GxError why = GX_ZERO;
    GX_TRY(gx__output_find_used(output_dir, name, err));
    if (!gx_run_read_or_why(output_dir, &why).run)
        return name[0]
                   ? GX_FAIL(err, GX_ERR_ARGUMENT,
                             "%s holds %s, but no run that --overwrite_output_dir could replace (%s); move it away, "
                             "or choose another --output_dir",
                             output_dir, name, why.message)
                   : GX_OK;
    GX_TRY(gx__output_remove_checkpoints(output_dir, "checkpoint-", err));
    GX_TRY(gx_path_join(abandoned, output_dir, GX_ABANDONED, err));
    if (gx_path_is_folder(abandoned)) {
        GX_TRY(gx__output_remove_checkpoints(abandoned, "checkpoint-", err));
        GX_TRY(gx__output_unlink(abandoned, "log.jsonl", err));
        rmdir(abandoned); // stays if something else is in it
    }
    GX_TRY(gx__output_remove_side_cache(output_dir, err));
    GX_TRY(gx_path_join(runs, output_dir, "runs", err));
    GX_TRY(gx_event_files_remove(runs, err));
    for (int k = GX__OUTPUT_NAMES - 1; k >= 0; k--) GX_TRY(gx__output_unlink(output_dir, gx__output_names[k], err));
    return GX_OK;
}

// ---- checkpoints that a run has abandoned ---------------------------------------------------------------------------

// 1: a checkpoint whose files do not match its manifest, so that nothing in it can be trusted.
static int gx__output_is_damaged(const char *path)
{
    GxError torn = GX_ZERO;
    return gx__output_is_checkpoint(path) && gx_folder_verify(path, 1, &torn) != GX_OK;
}

// 1: a checkpoint of this run, or a damaged one, which may be set apart. One that has lost its manifest is this run's
// if its state says so; any other folder without a manifest is the user's own.
static int gx__output_may_abandon(const char *path, int64_t run)
{
    char manifest[GX_PATH];
    GxError too_long = GX_ZERO;
    if (gx_path_join(manifest, path, GX_MANIFEST, &too_long) != GX_OK) return 0;
    if (!gx_path_is_file(manifest)) return run && gx__output_belongs_to(path, run);
    return gx__output_belongs_to(path, run) || gx__output_is_damaged(path);
}

static GxStatus gx__output_refuse_conflict(const char *path, int64_t run, int64_t step, GxError *err)
{
    if (gx__output_may_abandon(path, run)) return GX_OK;
    if (!gx_folder_is_ours(path))
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "this run may have to save step %ld to %s, which already exists, but without a %s: another program wrote "
            "it, or this one did not finish; move it away, remove it, or choose another --output_dir",
            (long)step, path, GX_MANIFEST);
    if (!gx__output_is_checkpoint(path))
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "this run may have to save step %ld to %s, which has no trainer_state.json that says to which "
                       "run it belongs; move it away, remove it, or choose another --output_dir",
                       (long)step, path);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "this run may have to save step %ld to %s, which is a checkpoint of another run; choose another "
                   "--output_dir, or move that checkpoint away or remove it",
                   (long)step, path);
}

GxStatus gx_output_refuse_conflicts(const char *output_dir, int64_t run, int64_t begun, int64_t last, GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH];
        const int64_t n = gx__output_parse_number(list.entry[i].name);
        if (n <= begun || n > last) continue;
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx__output_refuse_conflict(path, run, n, err);
    }
    gx_folder_close(&list);
    return status;
}

// Moves a checkpoint to abandoned/checkpoint-20, or checkpoint-20-2 if that exists.
static GxStatus gx__output_abandon(const char *output_dir, int64_t n, GxError *err)
{
    char path[GX_PATH], folder[GX_PATH], abandoned[GX_PATH], name[60];
    GX_TRY(gx_checkpoint_path(path, output_dir, n, err));
    GX_TRY(gx_path_join(folder, output_dir, GX_ABANDONED, err));
    GX_TRY(gx_folder_make(folder, err));
    for (int k = 1;; k++) {
        snprintf(name, sizeof name, k == 1 ? "checkpoint-%ld" : "checkpoint-%ld-%d", (long)n, k);
        GX_TRY(gx_path_join(abandoned, folder, name, err));
        if (access(abandoned, F_OK) != 0) break;
    }
    GX_TRY(gx_folder_move(path, abandoned, err));
    return gx_file_sync(output_dir, err);
}

// Counts the checkpoints after `step` that are this run's or damaged; moves: also moves them to abandoned/.
static GxStatus gx__output_abandon_later(const char *output_dir, int64_t run, int64_t step, int moves, int *count,
                                         GxError *err)
{
    GxFolder list;
    GxStatus status = GX_OK;
    *count = 0;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    for (int i = 0; i < list.n && status == GX_OK; i++) {
        char path[GX_PATH];
        const int64_t n = list.entry[i].is_folder ? gx__output_parse_number(list.entry[i].name) : -1;
        if (n <= step) continue;
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status != GX_OK || !gx__output_may_abandon(path, run)) continue;
        ++*count;
        if (moves) status = gx__output_abandon(output_dir, n, err);
    }
    gx_folder_close(&list);
    return status;
}

static GxStatus gx__output_finish_rewind(const char *output_dir, const GxRunInfo *r, int64_t step, int *moved,
                                         GxError *err)
{
    GxRunInfo there = *r;
    there.returns_to = -1;
    GX_TRY(gx__output_abandon_later(output_dir, r->run, step, 1, moved, err));
    return gx_run_write(output_dir, &there, err);
}

GxStatus gx_output_rewind(const char *output_dir, const GxRunInfo *r, int64_t step, int *moved, GxError *err)
{
    GxRunInfo on_its_way = *r;
    on_its_way.returns_to = step;
    GX_TRY(gx__output_abandon_later(output_dir, r->run, step, 0, moved, err));
    if (*moved) GX_TRY(gx_run_write(output_dir, &on_its_way, err)); // from here on the move will be completed
    return gx__output_finish_rewind(output_dir, r, step, moved, err);
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
    GX_TRY(gx__output_clean_up(output_dir, err));
    const GxRunInfo r = gx_run_read(output_dir);
    int moved;
    return r.returns_to < 0 ? GX_OK : gx__output_finish_rewind(output_dir, &r, r.returns_to, &moved, err);
}

// ---- finding the newest, and removing the oldest --------------------------------------------------------------------

GxStatus gx_checkpoint_newest(const char *output_dir, int64_t run, char newest[GX_PATH], const GxLogger *log,
                              GxError *err)
{
    GxFolder list;
    newest[0] = 0;
    if (!gx_path_is_folder(output_dir)) return GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    GxStatus status = GX_OK;
    const int64_t most = gx_run_read(output_dir).returns_to; // later checkpoints have been abandoned
    for (int64_t n = gx__output_newest_before(&list, most < 0 ? INT64_MAX : most + 1); n >= 0 && status == GX_OK;
         n = gx__output_newest_before(&list, n)) {
        GxError torn = GX_ZERO;
        status = gx_checkpoint_path(newest, output_dir, n, err);
        if (status != GX_OK) break;
        const int whole = gx_folder_verify(newest, 1, &torn) == GX_OK;
        if (whole && gx__output_belongs_to(newest, run)) break;
        if (whole)
            gx_log(log, GX_LOG_WARNING, "%s does not belong to the last run that was started in %s, and is skipped",
                   newest, output_dir);
        else gx_log(log, GX_LOG_WARNING, "%s is incomplete, and is skipped: %s", newest, torn.message);
        newest[0] = 0;
    }
    gx_folder_close(&list);
    return status;
}

GxStatus gx_checkpoint_prune(const char *output_dir, int64_t run, int64_t newest, int64_t keep, int64_t best,
                             GxError *err)
{
    GxFolder list;
    if (keep <= 0) return GX_OK;
    GX_TRY(gx_folder_list(&list, output_dir, err));
    GxStatus status = GX_OK;
    int64_t kept = 0;
    for (int64_t n = gx__output_newest_before(&list, newest + 1); n >= 0 && status == GX_OK;
         n = gx__output_newest_before(&list, n)) {
        char path[GX_PATH], manifest[GX_PATH];
        status = gx_checkpoint_path(path, output_dir, n, err);
        if (status == GX_OK) status = gx_path_join(manifest, path, GX_MANIFEST, err);
        if (status != GX_OK || !gx_path_is_file(manifest) || !gx__output_belongs_to(path, run)) continue;
        if (++kept > keep && n != best) status = gx_publish_remove(path, err);
    }
    gx_folder_close(&list);
    return status;
}

// ---- disk space -----------------------------------------------------------------------------------------------------

GxStatus gx_output_compare_space(const char *output_dir, int64_t left, int64_t bytes, int64_t count,
                                 const GxLogger *log, GxError *err)
{
    const double mb = (double)bytes / 1e6, left_mb = (double)left / 1e6;
    if (left < bytes)
        return GX_FAIL(err, GX_ERR_IO,
                       "a checkpoint takes %.1f MB, but the disk of %s has only %.1f MB left; make room, or choose "
                       "another --output_dir",
                       mb, output_dir, left_mb);
    if ((double)left < (double)count * (double)bytes)
        gx_log(log, GX_LOG_WARNING,
               "%ld checkpoint%s of %.1f MB will be in %s at once, but its disk has only %.1f MB left; "
               "--save_total_limit says how many are kept",
               (long)count, gx_text_s(count), mb, output_dir, left_mb);
    return GX_OK;
}

GxStatus gx_output_check_space(const char *output_dir, int64_t bytes, int64_t count, const GxLogger *log, GxError *err)
{
    struct statvfs disk;
    if (statvfs(output_dir, &disk) != 0) return GX_OK; // the file system does not say
    return gx_output_compare_space(output_dir, (int64_t)disk.f_bavail * (int64_t)disk.f_frsize, bytes, count, log, err);
}

// ---- a model or an adapter to start from ----------------------------------------------------------------------------

// Refuses a run's folder, which has checkpoints in it, but no model of its own.
static GxStatus gx__output_refuse_run(const char *folder, const char *option, const char *config, GxError *err)
{
    char path[GX_PATH], newest[GX_PATH] = "";
    GX_TRY(gx_path_join(path, folder, config, err));
    if (gx_path_is_file(path) || !gx_path_is_folder(folder)) return GX_OK;
    GX_TRY(gx_checkpoint_newest(folder, 0, newest, NULL, err));
    if (newest[0])
        return GX_FAIL(err, GX_ERR_ARGUMENT,
                       "--%s %s: that folder contains checkpoints, and has no %s of its own; name one of them: the "
                       "newest is --%s %s",
                       option, folder, option, option, newest);
    if (gx_run_read(folder).run)
        return GX_FAIL(err, GX_ERR_ARGUMENT, "--%s %s: that is the folder of a run without a complete checkpoint",
                       option, folder);
    return GX_OK;
}

// "NAME" or "ORGANIZATION/NAME", of letters, digits, - _ and .
static int gx__output_may_be_on_hub(const char *name)
{
    const size_t n = strlen(name);
    const char *slash = strchr(name, '/');
    static const char signs[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
    return name[0] != '.' && name[0] != '/' && strspn(name, signs) == n && n < 100 && name[n - 1] != '/' &&
           (!slash || !strchr(slash + 1, '/'));
}

GxStatus gx_output_check_exists(const char *folder, const char *option, GxError *err)
{
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    if (!folder[0] || access(folder, F_OK) == 0) return GX_OK;
    if (!gx__output_may_be_on_hub(folder))
        return GX_FAIL(err, GX_ERR_ARGUMENT, "there is no folder %s; --%s needs one", folder, option);
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "there is no folder %s; if that is a name on the Hugging Face hub, download it with `hf download %s "
                   "--local-dir %s` (pip install huggingface_hub), then say --%s %s",
                   folder, folder, name, option, name);
}

GxStatus gx_output_check_place(const char *folder, GxError *err)
{
    char path[GX_PATH], parent[GX_PATH];
    GX_TRY(gx_output_refuse_nested("--output_dir", folder, err));
    snprintf(path, sizeof path, "%.*s", gx_path_length(folder), folder);
    const int64_t number = gx_checkpoint_number(path);
    gx_path_parent(parent, path);
    if (number < 0 || !gx_run_read(parent).run) return GX_OK;
    return GX_FAIL(err, GX_ERR_ARGUMENT,
                   "--output_dir %s has the name of a checkpoint of the run in %s, and would be taken for one, and "
                   "removed; choose another folder",
                   folder, parent);
}

GxStatus gx_output_check_adapter(const char *folder, GxError *err)
{
    GX_TRY(gx_output_check_exists(folder, "adapter", err));
    return gx__output_refuse_run(folder, "adapter", GX_ADAPTER_CONFIG, err);
}

static GxStatus gx__output_refuse_file(const char *folder, GxError *err)
{
    const char *end = strrchr(folder, '.');
    if (!gx_path_is_file(folder)) return GX_OK;
    if (end && !strcmp(end, ".gguf"))
        return GX_FAIL(
            err, GX_ERR_ARGUMENT,
            "%s is a file, but --model needs a folder; ./convert_gguf --gguf %s --output_dir FOLDER makes one from it",
            folder, folder);
    return GX_FAIL(err, GX_ERR_ARGUMENT, "%s is a file, but --model needs the folder that has config.json and weights",
                   folder);
}

// If the folder has a manifest, its files must match it.
GxStatus gx_output_check_model(const char *folder, GxError *err)
{
    char manifest[GX_PATH];
    GxError torn = GX_ZERO;
    GX_TRY(gx_output_check_exists(folder, "model", err));
    GX_TRY(gx__output_refuse_file(folder, err));
    GX_TRY(gx__output_refuse_run(folder, "model", "config.json", err));
    GX_TRY(gx_sentence_check_place(folder, err));
    GX_TRY(gx_path_join(manifest, folder, GX_MANIFEST, err));
    if (!gx_path_is_file(manifest) || gx_folder_verify(folder, 1, &torn) == GX_OK) return GX_OK;
    return GX_FAIL(err, gx_error_code(&torn), "%s; if that was changed on purpose, remove %s", torn.message, manifest);
}
#endif
